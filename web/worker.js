// Runs `kolmo`, compiled for WASI, in a worker of the page. Provides the system interface
// (arguments, files, a clock) and the WebGPU functions that `src/lane/browser.rs` calls.

// Results of system calls that the program distinguishes.
const [OK, BAD_FILE, IS_FOLDER, NO_ENTRY, NO_CALL, NO_FOLDER] = [0, 8, 31, 44, 52, 54];
const [DEVICE, FOLDER, FILE] = [2, 3, 4];
const text = new TextEncoder();
class Exit { constructor(code) { this.code = code; } }

// Views are recreated at each use, since growth of the program's memory detaches them.
let memory;
const bytes = (at, length) => new Uint8Array(memory.buffer, at, length);
const view = () => new DataView(memory.buffer);
const string = (at, length) => new TextDecoder().decode(bytes(at, length));
const put = (at, ...words) => words.forEach((word, i) => view().setUint32(at + 4 * i, word, true));
const put64 = (at, value) => view().setBigUint64(at, BigInt(Math.trunc(value)), true);

/// Implements WASI preview 1 for files in memory. Outputs have the type of devices, so that the
/// program writes them directly, without a temporary file.
function system(args, files, outputs, say) {
  const nodes = new Map(Object.entries(files).map(([name, data]) => [name, { kind: FILE, data, length: data.length }]));
  const empty = () => new Uint8Array(1 << 12);
  outputs.forEach((name) => nodes.set(name, { kind: DEVICE, data: empty(), length: 0 }));
  const spoken = (stream) => {
    let begun = '';
    const decoder = new TextDecoder();
    const hear = (data) => {
      const lines = (begun + decoder.decode(data, { stream: true })).split('\n');
      begun = lines.pop();
      lines.forEach((line) => say(stream, line));
    };
    return { kind: DEVICE, say: hear };
  };
  const open = new Map([{ kind: DEVICE, data: empty(), length: 0 }, spoken('out'), spoken('err'), { kind: FOLDER }]
    .map((node, fd) => [fd, { node, at: 0 }]));
  let next = open.size;
  const named = (at, length) => {
    const name = string(at, length).replace(/^[./]*\//, '');
    return name === '' || name === '.' ? { kind: FOLDER } : nodes.get(name);
  };
  const stat = (node, to) => {
    if (!node) return NO_ENTRY;
    bytes(to, 64).fill(0);
    view().setUint8(to + 16, node.kind);
    put64(to + 32, node.length ?? 0);
    return OK;
  };
  const list = (strings) => ({
    sizes: (count, size) => (put(count, strings.length), put(size, strings.reduce((sum, s) => sum + s.length, 0)), OK),
    get: (pointers, to) => {
      strings.forEach((s, i) => { put(pointers + 4 * i, to); bytes(to, s.length).set(s); to += s.length; });
      return OK;
    },
  });
  const each = (vectors, count, work) => {
    let done = 0;
    for (let i = 0; i < count; i += 1) {
      done += work(view().getUint32(vectors + 8 * i, true), view().getUint32(vectors + 8 * i + 4, true));
    }
    return done;
  };
  const read = (file, at, vectors, count, done) => {
    if (!file?.node.data) return file ? IS_FOLDER : BAD_FILE;
    const all = each(vectors, count, (to, length) => {
      const part = file.node.data.subarray(at, Math.min(at + length, file.node.length));
      bytes(to, part.length).set(part);
      at += part.length;
      return part.length;
    });
    put(done, all);
    file.at = at;
    return OK;
  };
  const write = (file, vectors, count, done) => {
    if (!file) return BAD_FILE;
    const { node } = file;
    put(done, each(vectors, count, (from, length) => {
      const part = bytes(from, length);
      if (node.say) return node.say(part.slice()), length;
      if (file.at + length > node.data.length) {
        const larger = new Uint8Array(2 * (file.at + length));
        larger.set(node.data);
        node.data = larger;
      }
      node.data.set(part, file.at);
      file.at += length;
      node.length = Math.max(node.length, file.at);
      return length;
    }));
    return OK;
  };
  const given = list(args.map((arg) => text.encode(`${arg}\0`)));
  const environment = list([text.encode('NO_COLOR=1\0')]);
  const calls = {
    args_sizes_get: given.sizes, args_get: given.get,
    environ_sizes_get: environment.sizes, environ_get: environment.get,
    clock_time_get: (clock, _, to) => (put64(to, 1e6 * (clock === 0 ? Date.now() : performance.now())), OK),
    random_get: (to, length) => {
      for (let i = 0; i < length; i += 65536) crypto.getRandomValues(bytes(to + i, Math.min(65536, length - i)));
      return OK;
    },
    sched_yield: () => OK,
    proc_exit: (code) => { throw new Exit(code); },
    fd_prestat_get: (fd, to) => (fd === 3 ? (put(to, 0, 1), OK) : BAD_FILE),
    fd_prestat_dir_name: (_, to) => (bytes(to, 1).set(text.encode('/')), OK),
    fd_fdstat_get: (fd, to) => {
      if (!open.has(fd)) return BAD_FILE;
      bytes(to, 24).fill(0);
      view().setUint8(to, open.get(fd).node.kind);
      bytes(to + 8, 16).fill(255);
      return OK;
    },
    fd_fdstat_set_flags: () => OK,
    fd_filestat_get: (fd, to) => (open.has(fd) ? stat(open.get(fd).node, to) : BAD_FILE),
    path_filestat_get: (_, __, at, length, to) => stat(named(at, length), to),
    path_open: (_, __, at, length, flags, ___, ____, _____, to) => {
      const node = named(at, length);
      if (!node) return NO_ENTRY;
      if (flags & 2 && node.kind !== FOLDER) return NO_FOLDER;
      open.set(next, { node, at: 0 });
      put(to, next++);
      return OK;
    },
    fd_read: (fd, vectors, count, done) => read(open.get(fd), open.get(fd)?.at, vectors, count, done),
    fd_pread: (fd, vectors, count, at, done) => read({ ...open.get(fd) }, Number(at), vectors, count, done),
    fd_write: (fd, vectors, count, done) => write(open.get(fd), vectors, count, done),
    fd_seek: (fd, offset, whence, to) => {
      const file = open.get(fd);
      if (!file) return BAD_FILE;
      file.at = Number(offset) + [0, file.at, file.node.length][whence];
      put64(to, file.at);
      return OK;
    },
    fd_close: (fd) => (open.delete(fd) ? OK : BAD_FILE),
  };
  const read_output = (name) => nodes.get(name).data.slice(0, nodes.get(name).length);
  return { calls: new Proxy(calls, { get: (all, name) => all[name] ?? (() => NO_CALL) }), read_output };
}

/// Returns a device that a program can wait for, or the reason why there is none.
async function request_device() {
  if (!navigator.gpu) return 'This browser has no WebGPU.';
  if (!WebAssembly.Suspending) return 'This browser’s WebAssembly cannot wait for WebGPU (JSPI).';
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) return 'WebGPU finds no graphics adapter here.';
  const wanted = ['maxStorageBufferBindingSize', 'maxBufferSize'];
  const requiredLimits = Object.fromEntries(wanted.map((name) => [name, adapter.limits[name]]));
  const device = await adapter.requestDevice({ requiredLimits });
  const { description, vendor, architecture } = adapter.info;
  device.title = description || [vendor, architecture].filter(Boolean).join(' ') || 'a graphics adapter';
  device.software = adapter.info.isFallbackAdapter || /swiftshader|llvmpipe/i.test(`${device.title} ${architecture}`);
  return device;
}

/// The functions of `src/lane/browser.rs`. Without a device they return 0.
function webgpu(device) {
  const [PARAMETERS, SLOT] = [16, 256];
  let error = '';
  let last = 0;
  const [buffers, pipelines, launches, known, submitted] = [new Map(), new Map(), new Map(), new Map(), new Map()];
  const keep = (map, value) => (map.set(last += 1, value), last);
  const tell = (value, to, room) => {
    const all = text.encode(value);
    bytes(to, Math.min(room, all.length)).set(all.subarray(0, room));
    return all.length;
  };
  const none = { text: () => 0, limit: () => 0 };
  if (!device) return new Proxy(none, { get: (all, name) => all[name] ?? (() => 0) });

  device.onuncapturederror = (event) => { error ||= event.error.message; };
  device.lost.then((why) => { error ||= why.message || 'the device is lost'; });
  const { limits, queue } = device;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const command = (work) => {
    const encoder = device.createCommandEncoder();
    work(encoder);
    queue.submit([encoder.finish()]);
  };
  // Replacement for immediates: a slot of a uniform buffer for each launch.
  const layout_entry = (binding, buffer) => ({ binding, visibility: GPUShaderStage.COMPUTE, buffer });
  const slot_layout = device.createBindGroupLayout(
    { entries: [layout_entry(0, { type: 'uniform', hasDynamicOffset: true, minBindingSize: 4 * PARAMETERS })] });
  let slots;
  const expect_slots = (count) => {
    if (slots?.count >= count) return;
    const buffer = device.createBuffer({ size: SLOT * count, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST });
    const entries = [{ binding: 0, resource: { buffer, size: 4 * PARAMETERS } }];
    slots = { count, buffer, group: device.createBindGroup({ layout: slot_layout, entries }) };
  };
  const create_pipeline = async (at, length) => {
    const description = string(at, length);
    if (known.has(description)) return known.get(description);
    const { name, text: code, constants, written } = JSON.parse(description);
    const entries = written.map((own, i) => layout_entry(i, { type: own ? 'storage' : 'read-only-storage' }));
    const layout = device.createBindGroupLayout({ entries });
    try {
      const pipeline = await device.createComputePipelineAsync({
        label: name,
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout, slot_layout] }),
        compute: { module: device.createShaderModule({ label: name, code }), entryPoint: name, constants },
      });
      known.set(description, keep(pipelines, { pipeline, layout }));
    } catch (refused) {
      error ||= refused.message;
      return 0;
    }
    return known.get(description);
  };
  const wait = async (submission) => {
    await submitted.get(submission);
    for (const number of submitted.keys()) if (number <= submission) submitted.delete(number);
  };
  const waiting = (work) => new WebAssembly.Suspending(work);
  return {
    text: (which, to, room) => tell(which === 0 ? device.title : error, to, room),
    limit: (which) => [limits.maxStorageBufferBindingSize, limits.maxBufferSize, limits.maxComputeWorkgroupsPerDimension,
      Number(device.software)][which],
    create_buffer: waiting(async (size) => {
      device.pushErrorScope('out-of-memory');
      const buffer = device.createBuffer({ size: 4 * Math.ceil(size / 4), usage });
      return (await device.popErrorScope()) ? 0 : keep(buffers, buffer);
    }),
    destroy_buffer: (buffer) => { buffers.get(buffer).destroy(); buffers.delete(buffer); },
    write: (buffer, at, from, length) => queue.writeBuffer(buffers.get(buffer), at, memory.buffer, from, length),
    read: waiting(async (buffer, at, to, length) => {
      const staging = device.createBuffer({ size: length, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
      command((encoder) => encoder.copyBufferToBuffer(buffers.get(buffer), at, staging, 0, length));
      try {
        await staging.mapAsync(GPUMapMode.READ);
        bytes(to, length).set(new Uint8Array(staging.getMappedRange()));
      } catch (lost) {
        error ||= lost.message;
      }
      staging.destroy();
    }),
    clear: (buffer) => command((encoder) => encoder.clearBuffer(buffers.get(buffer))),
    copy: (from, to, at, length) => command(
      (encoder) => encoder.copyBufferToBuffer(buffers.get(from), 0, buffers.get(to), at, length)),
    create_pipeline: waiting(create_pipeline),
    bind: (number, from, count) => {
      const { pipeline, layout } = pipelines.get(number);
      const entries = [...new Uint32Array(memory.buffer, from, count)]
        .map((buffer, binding) => ({ binding, resource: { buffer: buffers.get(buffer) } }));
      return keep(launches, { pipeline, group: device.createBindGroup({ layout, entries }) });
    },
    unbind: (launch) => launches.delete(launch),
    submit: (from, count) => {
      const all = new Uint32Array(memory.buffer, from, count);
      const [words, places] = [3 + PARAMETERS, SLOT / 4];
      const number = count / words;
      if (number > 0) {
        expect_slots(number);
        const parameters = new Uint32Array(number * places);
        command((encoder) => {
          const pass = encoder.beginComputePass();
          for (let i = 0; i < number; i += 1) {
            const [launch, columns, rows] = all.subarray(i * words, i * words + 3);
            parameters.set(all.subarray(i * words + 3, (i + 1) * words), i * places);
            const { pipeline, group } = launches.get(launch);
            pass.setPipeline(pipeline);
            pass.setBindGroup(0, group);
            pass.setBindGroup(1, slots.group, [i * SLOT]);
            pass.dispatchWorkgroups(columns, rows);
          }
          pass.end();
          queue.writeBuffer(slots.buffer, 0, parameters);
        });
      }
      return keep(submitted, queue.onSubmittedWorkDone());
    },
    wait: waiting(wait),
  };
}

onmessage = async ({ data: { module, args, files, outputs } }) => {
  const say = (stream, line) => postMessage({ [stream]: line });
  const device = await request_device().catch((refused) => refused.message);
  const none = typeof device === 'string' ? device : null;
  if (!module) return postMessage({ none, device: device.title });
  const { calls, read_output } = system(args, files, outputs, say);
  const imports = { wasi_snapshot_preview1: calls, webgpu: webgpu(none ? null : device) };
  const { exports } = await WebAssembly.instantiate(module, imports);
  memory = exports.memory;
  let code = 0;
  try {
    await (none ? exports._start() : WebAssembly.promising(exports._start)());
  } catch (ended) {
    if (!(ended instanceof Exit)) say('err', `error: ${ended.message ?? ended}`);
    code = ended instanceof Exit ? ended.code : 2;
  }
  postMessage({ code, files: Object.fromEntries(outputs.map((name) => [name, read_output(name)])) });
};
