#!/usr/bin/perl
# SPDX-License-Identifier: BSD-2-Clause
# Sockets as Perl's programs use them: IO::Socket::INET, IP, UNIX, IO::Select, IO::Poll, buffered and unbuffered input and output,
# servers that fork and that execute. In the spirit of the tests of perl itself, which Debian does not ship. Speaks TAP.
use strict;
use warnings;
use Errno qw(EAGAIN EPIPE ECONNREFUSED EINPROGRESS EINTR);
use Fcntl;
use IO::Poll;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::IP;
use IO::Socket::UNIX;
use POSIX ();
use Socket qw(:all);
use Test::More;

my $MANY = 120; # exchanges: more than those after which a connection is moved

sub listener { return IO::Socket::INET->new(Listen => 20, LocalAddr => "127.0.0.1", Proto => "tcp", @_) // die "listen: $@" }

sub connected
{
    my ($to) = @_;
    return IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $to->sockport, Proto => "tcp", Timeout => 30) // die "connect: $@";
}

# A child that runs the code and ends with its result.
sub child
{
    my ($code) = @_;
    my $pid = fork;
    die "fork: $!" if !defined $pid;
    return $pid if $pid;
    my $status = eval { $code->() } // 99;
    print STDERR $@ if $@;
    POSIX::_exit($status);
}

sub ends { my ($pid) = @_; waitpid $pid, 0; return $? >> 8 }

sub echo_lines
{
    my ($socket) = @_;
    while (defined(my $line = <$socket>)) { print $socket $line }
    return 0;
}

sub exchange_lines
{
    my ($socket, $count) = @_;
    for my $number (1 .. $count) {
        my $line = "line $number " . ("x" x ($number % 50)) . "\n";
        print $socket $line;
        my $back = <$socket>;
        return "at $number" if !defined $back || $back ne $line;
    }
    return "all";
}

{
    my $listener = listener();
    my $pid = child(sub { my $s = $listener->accept; close $listener; echo_lines($s) });
    my $client = connected($listener);
    is($client->peerhost . ":" . $client->peerport, "127.0.0.1:" . $listener->sockport, "addresses");
    ok($client->connected, "connected");
    is($client->sockopt(SO_TYPE), SOCK_STREAM, "type");
    is(exchange_lines($client, $MANY), "all", "lines, buffered");
    ok($client->shutdown(1), "shutdown");
    is(scalar(<$client>), undef, "end");
    is(ends($pid), 0, "child's end");
}
{
    my $listener = listener();
    my $server = child(sub {
        local $SIG{CHLD} = "IGNORE";
        for (1 .. 6) {
            my $s = $listener->accept or redo;
            my $pid = fork;
            if ($pid == 0) { close $listener; POSIX::_exit(echo_lines($s)) }
            close $s;
        }
        return 0;
    });
    my @clients = map { my $number = $_; child(sub { exchange_lines(connected($listener), $MANY + $number) eq "all" ? 0 : 1 }) } 1 .. 6;
    is(join(",", map { ends($_) } @clients), "0,0,0,0,0,0", "server that forks");
    is(ends($server), 0, "its end");
}
{
    my $listener = listener();
    my @clients = map { my $number = $_; child(sub { my $s = connected($listener); exchange_lines($s, $MANY) eq "all" ? 0 : 1 }) } 1 .. 5;
    my ($set, $closed) = (IO::Select->new($listener), 0);
    while ($closed < 5) {
        for my $ready ($set->can_read) {
            if ($ready == $listener) { $set->add($listener->accept); next }
            if (sysread $ready, my $data, 4096) { syswrite $ready, $data } else { $set->remove($ready); close $ready; ++$closed }
        }
    }
    is(join(",", map { ends($_) } @clients), "0,0,0,0,0", "IO::Select server");
    is($set->count, 1, "set's members");
}
{
    my $listener = listener();
    my $client = connected($listener);
    my $server = $listener->accept;
    my $poll = IO::Poll->new;
    $poll->mask($server => POLLIN);
    is($poll->poll(0), 0, "poll, nothing there");
    for (1 .. $MANY) { syswrite $client, "a"; $poll->poll(10); sysread $server, my $byte, 1; syswrite $server, "b"; sysread $client, $byte, 1 }
    syswrite $client, "c";
    is($poll->poll(10), 1, "poll, something there");
    ok($poll->events($server) & POLLIN, "its event");
    is(recv($server, my $peeked, 10, MSG_PEEK) // "none", "", "peek");
    is($peeked, "c", "what was peeked");
    sysread $server, my $data, 10;
    is($data, "c", "is still there");
    $server->blocking(0);
    is(sysread($server, $data, 10), undef, "nothing to read");
    ok($! == EAGAIN, "its errno");
    $server->blocking(1);
    close $client;
    is(sysread($server, $data, 10), 0, "end");
    my $bits = "";
    vec($bits, fileno $server, 1) = 1;
    is(scalar(select(my $in = $bits, undef, undef, 5)), 1, "select() of four arguments");
}
{
    my $listener = listener();
    my $client = connected($listener);
    my $server = $listener->accept;
    for (1 .. $MANY) { syswrite $client, "a"; sysread $server, my $byte, 1; syswrite $server, "b"; sysread $client, $byte, 1 }
    syswrite $client, "before";
    is(send($client, "!", MSG_OOB), 1, "urgent byte");
    syswrite $client, "after";
    my ($got, $data) = ("");
    my $except = "";
    vec($except, fileno $server, 1) = 1;
    is(scalar(select(undef, undef, my $e = $except, 10)), 1, "select() tells of it");
    while ($server->atmark == 0) { sysread $server, $data, 1; $got .= $data }
    is($got, "before", "sockatmark");
    is(defined recv($server, $data, 1, MSG_OOB) ? $data : "$!", "!", "the urgent byte");
    sysread $server, $data, 10;
    is($data, "after", "what came after");
}
{
    my $listener = listener();
    my $client = connected($listener);
    my $server = $listener->accept;
    open my $copy, "+<&", $client or die $!;
    $copy->autoflush;
    print $copy "by the copy\n";
    is(scalar(<$server>), "by the copy\n", "a duplicate writes");
    close $client;
    is(exchange_with_copy($copy, $server), "all", "a duplicate lives on");
    close $copy;
    is(scalar(<$server>), undef, "the last one's end");
}

sub exchange_with_copy
{
    my ($copy, $server) = @_;
    for my $number (1 .. $MANY) {
        print $copy "$number\n";
        return "at $number" if <$server> ne "$number\n";
    }
    return "all";
}

{
    my $listener = listener();
    my $pid = child(sub {
        my $s = $listener->accept;
        for (1 .. $MANY) { sysread $s, my $byte, 1; syswrite $s, $byte }
        open STDIN, "<&", $s;
        open STDOUT, ">&", $s;
        exec "/bin/cat";
    });
    my $client = connected($listener);
    for (1 .. $MANY) { syswrite $client, "a"; sysread $client, my $byte, 1 }
    is(exchange_lines($client, 20), "all", "a program that was executed, on descriptors 0 and 1");
    shutdown $client, 1;
    is(ends($pid), 0, "its end");
}
{
    my $listener = listener();
    my $client = connected($listener);
    my $server = $listener->accept;
    for (1 .. $MANY) { syswrite $client, "a"; sysread $server, my $byte, 1; syswrite $server, "b"; sysread $client, $byte, 1 }
    my $result = eval {
        local $SIG{ALRM} = sub { die "alarm\n" };
        alarm 1;
        sysread $server, my $data, 1;
        1;
    };
    is($@, "alarm\n", "a signal ends the wait");
    close $client;
    local $SIG{PIPE} = "IGNORE";
    my $sent = 1;
    for (1 .. 100) { $sent = syswrite $server, "x" x 1000; last if !defined $sent }
    ok(!defined $sent && ($!{EPIPE} || $!{ECONNRESET}), "write to who is gone");
}
{
    my $listener = listener();
    my $pid = child(sub { my $s = $listener->accept; my ($all, $data) = (""); $all .= $data while sysread $s, $data, 70_000;
        syswrite $s, unpack("%32C*", $all) . "/" . length($all); return 0 });
    my $client = connected($listener);
    my $data = join "", map { chr($_ * 7 % 251) } 1 .. 3_000_000;
    $client->blocking(0);
    my $set = IO::Select->new($client);
    for (my $at = 0; $at < length $data;) {
        my $sent = syswrite $client, $data, 65_536, $at;
        if (defined $sent) { $at += $sent } else { die $! if $! != EAGAIN; $set->can_write }
    }
    shutdown $client, 1;
    $client->blocking(1);
    is(join("", <$client>), unpack("%32C*", $data) . "/3000000", "megabytes without blocking");
    ends($pid);
}
for my $family (AF_INET, AF_INET6) {
    my $name = $family == AF_INET ? "IPv4" : "IPv6";
    my $listener = IO::Socket::IP->new(Listen => 5, Family => $family, GetAddrInfoFlags => 0,
        LocalHost => $family == AF_INET ? "127.0.0.1" : "::1") or die $@;
    my $pid = child(sub { my $s = $listener->accept; close $listener; echo_lines($s) });
    my $client = IO::Socket::IP->new(PeerHost => $listener->sockhost, PeerPort => $listener->sockport, Timeout => 30,
        GetAddrInfoFlags => 0) or die $@;
    is($client->sockdomain, $family, "$name: family");
    is($client->peerhost, $listener->sockhost, "$name: address");
    is(exchange_lines($client, $MANY), "all", "$name: lines");
    close $client;
    is(ends($pid), 0, "$name: child's end");
}
{
    my $listener = IO::Socket::IP->new(Listen => 5, Family => AF_INET6, LocalHost => "::", V6Only => 0, GetAddrInfoFlags => 0) or die $@;
    my $pid = child(sub { my $s = $listener->accept; return $s->peerhost eq "::ffff:127.0.0.1" ? echo_lines($s) : 1 });
    my $client = connected($listener);
    is(exchange_lines($client, $MANY), "all", "IPv4 to a socket of both families");
    close $client;
    is(ends($pid), 0, "its address is mapped");
}
{
    my $one = IO::Socket::INET->new(Proto => "udp", LocalAddr => "127.0.0.1") or die $@;
    my $two = IO::Socket::INET->new(Proto => "udp", LocalAddr => "127.0.0.1") or die $@;
    my $good = 0;
    for my $number (1 .. $MANY) {
        $one->send("question $number", 0, $two->sockname);
        my $from = $two->recv(my $question, 1000);
        my ($port) = sockaddr_in($from);
        $two->send("answer to $question", 0, $from);
        $one->recv(my $answer, 1000);
        ++$good if $answer eq "answer to question $number" && $port == $one->sockport;
    }
    is($good, $MANY, "datagrams");
    is($two->peerport, $one->sockport, "who sent the last one");
    $one->send("a long datagram", 0, $two->sockname);
    $two->recv(my $part, 6);
    is($part, "a long", "a part of one");
}
{
    socketpair(my $left, my $right, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!;
    syswrite $left, "pair";
    sysread $right, my $data, 10;
    is($data, "pair", "socketpair");
    my $path = "sockets-pl-$$";
    my $listener = IO::Socket::UNIX->new(Local => $path, Listen => 1) or die $@;
    my $client = IO::Socket::UNIX->new(Peer => $path) or die $@;
    my $server = $listener->accept;
    is($server->hostpath, $path, "path of a local socket");
    print $client "local\n";
    is(scalar(<$server>), "local\n", "line through it");
    unlink $path;
}
{
    my $gone = listener();
    my $port = $gone->sockport;
    close $gone;
    ok(!IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $port), "nobody listens");
    ok($!{ECONNREFUSED}, "its errno");
    my $listener = listener();
    my $client = IO::Socket::INET->new(Proto => "tcp", Blocking => 0);
    my $now = $client->connect(pack_sockaddr_in($listener->sockport, inet_aton("127.0.0.1")));
    ok($now || $!{EINPROGRESS}, "connect without blocking");
    is(scalar(my @ready = IO::Select->new($client)->can_write(10)), 1, "it has come about");
    is($client->getsockopt(SOL_SOCKET, SO_ERROR), 0, "without an error");
    ok(!IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1", LocalPort => $listener->sockport), "a port that is taken");
    ok($!{EADDRINUSE}, "its errno ");
    $listener->timeout(1);
    $listener->accept;
    ok(!defined $listener->accept, "accept() has a limit of time");
}
done_testing;
