// SPDX-License-Identifier: BSD-2-Clause
// Sockets as node's programs use them: HTTP with connections that stay, streams that pause and that half close, datagrams, two
// workers of a cluster, a connection passed to a child. Written for this; node's own tests are not in Debian. Speaks TAP.
import assert from 'node:assert';
import { fork } from 'node:child_process';
import cluster from 'node:cluster';
import { createHash } from 'node:crypto';
import dgram from 'node:dgram';
import { once } from 'node:events';
import http from 'node:http';
import http2 from 'node:http2';
import net from 'node:net';
import { Worker, isMainThread, workerData } from 'node:worker_threads';
import { fileURLToPath } from 'node:url';

const SELF = fileURLToPath(import.meta.url);
const MANY = 150; // exchanges: more than those after which a connection is moved
const sha = (data) => createHash('sha256').update(data).digest('hex');

function pattern(size) {
    const data = Buffer.alloc(size);
    for (let at = 0; at < size; ++at) data[at] = (at * 7 + (at >> 8)) % 251;
    return data;
}

async function listening(server, ...where) {
    server.listen(...(where.length ? where : [0, '127.0.0.1']));
    await once(server, 'listening');
    return server.address().port;
}

// All until the end; unlike `for await`, it leaves a stream open that can still be written.
async function read(stream) {
    const parts = [];
    stream.on('data', (part) => parts.push(part));
    await once(stream, 'end');
    return Buffer.concat(parts);
}

function request(options, body) {
    return new Promise((resolve, reject) => {
        const asked = http.request(options, async (answer) => resolve({ status: answer.statusCode, body: await read(answer),
            reused: asked.reusedSocket }));
        asked.on('error', reject);
        asked.end(body);
    });
}

// Sends `count` lines, each after the answer to the one before.
async function exchange(socket, count) {
    let waiting;
    let got = '';
    socket.on('data', (data) => {
        got += data;
        if (got.endsWith('\n')) waiting(got), got = '';
    });
    for (let number = 0; number < count; ++number) {
        const line = `line ${number} ${'x'.repeat(number % 80)}\n`;
        const answer = await new Promise((resolve, reject) => {
            waiting = resolve;
            socket.once('error', reject);
            socket.write(line);
        });
        socket.removeAllListeners('error');
        assert.strictEqual(answer, line);
    }
}

const tests = {
    async 'http with connections that stay'() {
        const server = http.createServer(async (asked, answer) => {
            const body = await read(asked);
            answer.end(`${asked.method} ${asked.url} ${sha(body)}`);
        });
        const port = await listening(server);
        const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
        let reused = 0;
        for (let number = 0; number < MANY; ++number) {
            const body = pattern(number * 100);
            const answer = await request({ port, host: '127.0.0.1', agent, method: 'POST', path: `/${number}` }, body);
            assert.strictEqual(answer.body.toString(), `POST /${number} ${sha(body)}`);
            reused += answer.reused;
        }
        assert.strictEqual(reused, MANY - 1);
        agent.destroy();
        server.close();
        await once(server, 'close');
    },
    async 'http, many at once, large bodies'() {
        const large = pattern(2_000_000);
        const server = http.createServer((asked, answer) => asked.url === '/large' ? answer.end(large) : asked.pipe(answer));
        const port = await listening(server);
        const agent = new http.Agent({ keepAlive: true, maxSockets: 8 });
        const answers = await Promise.all(Array.from({ length: 40 }, (_, number) => number % 2
            ? request({ port, host: '127.0.0.1', agent, path: '/large' })
            : request({ port, host: '127.0.0.1', agent, method: 'PUT' }, large)));
        assert(answers.every((answer) => answer.body.equals(large)));
        agent.destroy();
        server.close();
    },
    async 'http2 streams'() {
        const server = http2.createServer();
        server.on('stream', (stream, headers) => { stream.respond(); stream.pipe(stream); });
        const port = await listening(server);
        const session = http2.connect(`http://127.0.0.1:${port}`);
        await Promise.all(Array.from({ length: 30 }, async (_, number) => {
            const stream = session.request({ ':method': 'POST' });
            stream.end(pattern(20_000 + number));
            assert.strictEqual(sha(await read(stream)), sha(pattern(20_000 + number)));
        }));
        session.close();
        await once(session, 'close');
        server.close();
    },
    async 'lines, IPv4 and IPv6'() {
        for (const host of ['127.0.0.1', '::1']) {
            const server = net.createServer((socket) => socket.pipe(socket));
            const socket = net.connect(await listening(server, 0, host), host);
            await exchange(socket, MANY);
            assert.strictEqual(socket.remoteAddress, host);
            socket.end();
            await once(socket, 'close');
            server.close();
        }
    },
    async 'server of both families'() {
        const server = net.createServer((socket) => socket.pipe(socket));
        const port = await listening(server, 0);
        for (const host of ['127.0.0.1', '::1']) {
            const socket = net.connect(port, host);
            await exchange(socket, MANY);
            socket.destroy();
        }
        server.close();
    },
    async 'pause and resume'() {
        const data = pattern(8_000_000);
        const server = net.createServer((socket) => { socket.resume(); socket.end(data); });
        const socket = net.connect(await listening(server), '127.0.0.1');
        const parts = [];
        let pauses = 0;
        socket.on('data', (part) => {
            parts.push(part);
            if (parts.length % 5 === 0) {
                ++pauses;
                socket.pause();
                setImmediate(() => setTimeout(() => socket.resume(), 1));
            }
        });
        await once(socket, 'end');
        assert.strictEqual(sha(Buffer.concat(parts)), sha(data));
        assert(pauses > 3);
        server.close();
    },
    async 'drain'() {
        const data = pattern(100_000);
        const server = net.createServer((socket) => setTimeout(() => socket.pipe(socket), 50));
        const socket = net.connect(await listening(server), '127.0.0.1');
        const back = read(socket);
        let drains = 0;
        for (let number = 0; number < 60; ++number)
            if (!socket.write(data)) ++drains, await once(socket, 'drain');
        socket.end();
        assert.strictEqual((await back).length, 6_000_000);
        assert(drains > 0);
        server.close();
    },
    async 'half open'() {
        const server = net.createServer({ allowHalfOpen: true }, async (socket) => {
            const got = await read(socket);
            socket.end(`${got.length} ${sha(got)}`);
        });
        const socket = net.connect({ port: await listening(server), host: '127.0.0.1', allowHalfOpen: true });
        for (let number = 0; number < MANY; ++number) socket.write(pattern(1000));
        socket.end();
        const wanted = Buffer.concat(Array.from({ length: MANY }, () => pattern(1000)));
        assert.strictEqual((await read(socket)).toString(), `${wanted.length} ${sha(wanted)}`);
        server.close();
    },
    async 'reset and destroy'() {
        const server = net.createServer((socket) => socket.on('error', () => {}).once('data', () => socket.resetAndDestroy()));
        const socket = net.connect(await listening(server), '127.0.0.1');
        socket.write('x');
        const [error] = await once(socket, 'error');
        assert.strictEqual(error.code, 'ECONNRESET');
        server.close();
        await once(server, 'close');
        const refused = net.connect(server.port ?? 1, '127.0.0.1');
        assert.strictEqual((await once(refused, 'error'))[0].code, 'ECONNREFUSED');
    },
    async 'time limit of a socket'() {
        const server = net.createServer((socket) => socket.pipe(socket));
        const socket = net.connect(await listening(server), '127.0.0.1');
        await exchange(socket, MANY);
        socket.setTimeout(50);
        await once(socket, 'timeout');
        socket.setNoDelay(true).setKeepAlive(true, 1000);
        socket.destroy();
        server.close();
    },
    async 'two hundred connections'() {
        const server = net.createServer((socket) => socket.pipe(socket));
        const port = await listening(server);
        const sockets = Array.from({ length: 200 }, () => net.connect(port, '127.0.0.1'));
        await Promise.all(sockets.map((socket) => exchange(socket, 40)));
        sockets.forEach((socket) => socket.end());
        await Promise.all(sockets.map((socket) => once(socket, 'close')));
        server.close();
    },
    async 'datagrams'() {
        for (const [type, host] of [['udp4', '127.0.0.1'], ['udp6', '::1']]) {
            const [one, two] = [dgram.createSocket(type), dgram.createSocket(type)];
            two.on('message', (message, from) => two.send(Buffer.concat([Buffer.from('re '), message]), from.port, from.address));
            one.bind(0, host), two.bind(0, host);
            await Promise.all([once(one, 'listening'), once(two, 'listening')]);
            for (let number = 0; number < MANY; ++number) {
                one.send(`number ${number}`, two.address().port, host);
                const [message, from] = await once(one, 'message');
                assert.strictEqual(`${message}`, `re number ${number}`);
                assert.strictEqual(from.port, two.address().port);
            }
            one.close(), two.close();
        }
    },
    async 'connected datagrams'() {
        const [one, two] = [dgram.createSocket('udp4'), dgram.createSocket('udp4')];
        one.bind(0, '127.0.0.1'), two.bind(0, '127.0.0.1');
        await Promise.all([once(one, 'listening'), once(two, 'listening')]);
        one.connect(two.address().port, '127.0.0.1');
        await once(one, 'connect');
        for (let number = 0; number < MANY; ++number) {
            one.send(`${number}`);
            assert.strictEqual(`${(await once(two, 'message'))[0]}`, `${number}`);
        }
        one.close(), two.close();
    },
    async 'cluster of two workers'() {
        cluster.setupPrimary({ exec: SELF, args: ['worker'] });
        const workers = [cluster.fork(), cluster.fork()];
        const ports = await Promise.all(workers.map(async (worker) => (await once(worker, 'listening'))[0].port));
        assert.strictEqual(ports[0], ports[1]);
        const served = new Set();
        for (let number = 0; number < 60; ++number)
            served.add(`${(await request({ port: ports[0], host: '127.0.0.1', agent: false })).body}`);
        assert.deepStrictEqual([...served].sort(), workers.map((worker) => `worker ${worker.process.pid}`).sort());
        const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
        for (let number = 0; number < MANY; ++number) await request({ port: ports[0], host: '127.0.0.1', agent });
        agent.destroy();
        const ends = workers.map((worker) => once(worker, 'exit'));
        workers.forEach((worker) => worker.disconnect());
        assert.deepStrictEqual((await Promise.all(ends)).map(([status]) => status), [0, 0]);
    },
    async 'connection passed to a child'() {
        const child = fork(SELF, ['child']);
        const server = net.createServer({ pauseOnConnect: true }, (socket) => child.send('take', socket));
        const port = await listening(server);
        const sockets = Array.from({ length: 10 }, () => net.connect(port, '127.0.0.1'));
        await Promise.all(sockets.map((socket) => exchange(socket, MANY)));
        sockets.forEach((socket) => socket.end());
        await Promise.all(sockets.map((socket) => once(socket, 'close')));
        child.disconnect();
        assert.strictEqual((await once(child, 'exit'))[0], 0);
        server.close();
    },
    async 'server passed to a child'() {
        const child = fork(SELF, ['child']);
        const server = net.createServer();
        const port = await listening(server);
        child.send('serve', server);
        await once(child, 'message');
        server.close();
        const socket = net.connect(port, '127.0.0.1');
        await exchange(socket, MANY);
        socket.destroy();
        child.send('end');
        assert.strictEqual((await once(child, 'exit'))[0], 0);
    },
    async 'a worker thread'() {
        const server = net.createServer((socket) => socket.pipe(socket));
        const port = await listening(server);
        const workers = [1, 2, 3].map(() => new Worker(SELF, { workerData: { port } }));
        assert.deepStrictEqual((await Promise.all(workers.map((worker) => once(worker, 'exit')))).flat(), [0, 0, 0]);
        server.close();
    },
};

async function main() {
    let number = 0;
    for (const [name, test] of Object.entries(tests)) {
        let wrong;
        try {
            await test();
        } catch (error) {
            wrong = error;
        }
        console.log(`${wrong ? 'not ok' : 'ok'} ${++number} - ${name}`);
        if (wrong) console.error(wrong);
    }
    console.log(`1..${number}`);
    process.exit(0);
}

function child() {
    process.on('message', (what, handle) => {
        if (what === 'take') handle.pipe(handle), handle.resume();
        else if (what === 'serve') handle.on('connection', (socket) => socket.pipe(socket)), process.send('serves');
        else process.exit(0);
    });
}

if (!isMainThread) {
    const socket = net.connect(workerData.port, '127.0.0.1');
    await exchange(socket, MANY);
    socket.end();
} else if (cluster.isWorker) {
    http.createServer((_, answer) => answer.end(`worker ${process.pid}`)).listen(0, '127.0.0.1');
} else if (process.argv[2] === 'child') {
    child();
} else {
    await main();
}
