// The page: a form for a command line of `kolmo transient`, and the results of the command.

const by_id = (id) => document.getElementById(id);
const [form, run] = [by_id('form'), by_id('run')];
const OUTPUTS = ['report.json', 'chart.svg', 'probabilities.csv'];
const MODELS = /\.((tra|drn|mtx)(\.gz)?|npz|npy|prism|sm|pm)$/i;
const BESIDE = /\.(lab|sta|srew|trew)(\.gz)?$/i;
const files = {};
let worker;

const worker_url = URL.createObjectURL(new Blob([by_id('worker').textContent], { type: 'text/javascript' }));
async function compile() {
  const packed = Uint8Array.from(atob(by_id('wasm').textContent.replace(/\s/g, '')), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return WebAssembly.compile(await new Response(stream).arrayBuffer());
}

/// Creates an element with text or children.
function element(tag, content = '', properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...[content].flat());
  return made;
}

/// Returns the arguments of the command and its output files, from the form.
function asked() {
  const value = (id) => by_id(id).value.trim();
  const times = value('times').replace(/\s+/g, '');
  const constants = value('constants').replace(/\s+/g, '');
  const labels = value('labels').split(',').map((label) => label.trim()).filter(Boolean);
  const shown = labels.length || Number(value('top'));
  // A chart needs several finite times and has at most seven lines.
  const drawn = shown <= 7 && (times.includes(':') || times.split(',').filter((t) => t && t !== 'inf').length > 1);
  const args = ['transient', value('model'), times.includes(':') ? '--times' : '--time', times];
  if (constants) args.push('--const', constants);
  args.push(...(labels.length > 0 ? labels.flatMap((label) => ['--label', label]) : ['--top', value('top')]));
  args.push('--precision', 'q64', '--epsilon', value('epsilon'));
  const outputs = OUTPUTS.filter((name) => drawn || !name.endsWith('svg'));
  const options = { json: '--report', svg: '--plot', csv: '-o' };
  const own = outputs.flatMap((name) => [options[name.split('.')[1]], name]);
  return { args: [...args, ...own], outputs, run_args: ['kolmo', ...args, '--device', value('device'), '--quiet', ...own] };
}

function show_facts(report) {
  // 1 − Σπ is the exact error if all terms were summed. After early termination, and at infinity,
  // the bound is the sum of its parts.
  const summed = (time) => time.deficit !== null && time.stopped === null && time.time !== null;
  const exact = report.per_time.every(summed);
  const error = (time) => (summed(time) ? time.deficit : Object.values(time.bound).reduce((a, b) => a + b, 0));
  const { solve } = report.seconds;
  const facts = {
    Device: report.devices[0].name,
    Chain: `${report.n.toLocaleString('en')} states, ${report.nnz.toLocaleString('en')} entries`,
    Steps: `${report.terms.toLocaleString('en')} in ${solve.toPrecision(3)} s`,
    Speed: `${Math.round(report.terms / solve).toLocaleString('en')} steps a second`,
    [exact ? 'Largest error (exact)' : 'Largest error (bound)']: Math.max(...report.per_time.map(error)).toExponential(2),
    Arithmetic: 'fractions of 2⁶⁴, rounded down',
  };
  by_id('facts').replaceChildren(
    ...Object.entries(facts).map(([name, value]) => element('div', [element('dt', name), element('dd', value)])));
  const names = report.per_time[0].values.map(({ label }, i) => label ?? (i === 0 ? 'most likely' : `no. ${i + 1}`));
  const head = ['time', exact ? 'exact error' : 'error at most', ...names].map((name) => element('th', name, { scope: 'col' }));
  const cell = (number, digits, state) => {
    const written = number === 0 ? '0' : number >= 1e-4 ? number.toFixed(10) : number.toExponential(digits);
    const made = element('td', state === undefined ? written : [element('span', `${state}: `), written]);
    made.dataset.value = made.title = number;
    return made;
  };
  // The most likely states differ from time to time.
  const rows = report.per_time.map((time) => element('tr', [element('td', String(time.time ?? 'inf')), cell(error(time), 2),
    ...time.values.map(({ state, value }) => cell(value, 6, state))]));
  by_id('table').replaceChildren(element('thead', [element('tr', head)]), element('tbody', rows));
}

function show(code, found, { args, outputs }) {
  const file = (name) => (outputs.includes(name) ? new TextDecoder().decode(found[name]) : '');
  const report = file('report.json') && JSON.parse(file('report.json'));
  by_id('said').textContent = report ? (code === 0 ? 'Done' : 'Done, but the error is larger than asked for') : 'Not computed';
  by_id('results').classList.remove('stale');
  by_id('begin').hidden = Boolean(report);
  ['facts', 'numbers', 'same'].forEach((id) => { by_id(id).hidden = !report; });
  by_id('chart').hidden = !(report && file('chart.svg'));
  if (!report) return;
  show_facts(report);
  // Column names, for narrow windows in which a row becomes a list.
  const heads = [...by_id('table').querySelectorAll('th')].map((head) => head.textContent);
  for (const row of by_id('table').tBodies[0].rows) [...row.cells].forEach((cell, i) => { cell.dataset.head = heads[i]; });
  by_id('chart').innerHTML = file('chart.svg');
  const link = (name) => element('a', name, { href: URL.createObjectURL(new Blob([found[name]])), download: name });
  by_id('saved').replaceChildren('Save ', ...outputs.map(link));
  const quoted = (arg) => (/^[\w.:,/=+-]+$/.test(arg) ? arg : `'${arg}'`);
  by_id('command').textContent = ['kolmo', ...args].map(quoted).join(' ');
}

function ended() {
  worker?.terminate();
  worker = undefined;
  run.textContent = 'Compute';
  run.classList.remove('stop');
  by_id('progress').hidden = true;
}

function start(module) {
  const command = asked();
  worker = new Worker(worker_url);
  run.textContent = 'Stop';
  run.classList.add('stop');
  by_id('wrong').textContent = '';
  by_id('said').textContent = 'Preparing …';
  // The results on display are of the previous run until this one ends.
  by_id('results').classList.add('stale');
  Object.assign(by_id('progress'), { hidden: false }).removeAttribute('value');
  worker.onmessage = ({ data }) => {
    if (data.err) {
      const [, done, all, what] = /^(\d+) of (\d+) (.*)/.exec(data.err) ?? [];
      if (!all) return by_id('wrong').append(`${data.err}\n`);
      by_id('said').textContent = `${Number(done).toLocaleString('en')} of ${Number(all).toLocaleString('en')} ${what}`;
      Object.assign(by_id('progress'), { max: all, value: done });
    }
    if ('code' in data) {
      ended();
      show(data.code, data.files, command);
    }
  };
  worker.onerror = (wrong) => {
    ended();
    show(2, {}, { outputs: [] });
    by_id('wrong').textContent = wrong.message;
  };
  worker.postMessage({ module, args: command.run_args, files, outputs: command.outputs });
}

/// Sets the model field: a file's name, or parameters of a built-in model.
function name_model(model, hint = '') {
  by_id('model').value = model;
  by_id('hint').textContent = hint;
  by_id('what').textContent = model in files ? 'File' : 'Parameters';
}

/// Lists the loaded files, each with a button that removes it.
function show_files() {
  by_id('held').replaceChildren(...Object.keys(files).map((name) => element('li', [name, element('button', '×', {
    type: 'button',
    ariaLabel: `Remove ${name}`,
    onclick: () => {
      delete files[name];
      if (by_id('model').value === name) name_model(Object.keys(files).find((other) => MODELS.test(other)) ?? '');
      show_files();
    },
  })])));
}

async function take(list) {
  const known = [...list].filter(({ name }) => MODELS.test(name) || BESIDE.test(name));
  const others = [...list].filter((file) => !known.includes(file)).map(({ name }) => name);
  by_id('refused').textContent = others.length > 0 ? `${others.join(', ')}: no file of a model, nor of its labels or rewards` : '';
  for (const file of known) files[file.name] = new Uint8Array(await file.arrayBuffer());
  const model = known.find((file) => MODELS.test(file.name));
  if (model) {
    by_id('kind').value = '';
    name_model(model.name);
  }
  show_files();
}

const drop = by_id('drop');
by_id('files').onchange = async (event) => {
  await take(event.target.files);
  // Allows to choose the same file again.
  event.target.value = '';
};
document.ondragover = (event) => { event.preventDefault(); drop.classList.add('over'); };
document.ondragleave = () => drop.classList.remove('over');
document.ondrop = (event) => { event.preventDefault(); drop.classList.remove('over'); take(event.dataTransfer.files); };
by_id('kind').onchange = (event) => {
  name_model(event.target.value, event.target.selectedOptions[0].title);
  if (!event.target.value) by_id('files').click();
};

// A worker without a program reports the available device.
worker = new Worker(worker_url);
worker.onmessage = ({ data: { none, device } }) => {
  ended();
  const [webgpu, cpu] = by_id('device').options;
  if (none) {
    webgpu.disabled = cpu.selected = true;
    by_id('notice').textContent = `${none} The processor computes the same bits, more slowly. For the graphics card open this `
      + 'page in Chrome or Edge 137 or newer, with graphics acceleration on in the settings; on Linux also switch on '
      + 'chrome://flags/#enable-unsafe-webgpu.';
  } else {
    webgpu.textContent = `WebGPU: ${device}`;
  }
};
worker.postMessage({});
try {
  const module = await compile();
  form.onsubmit = (event) => {
    event.preventDefault();
    if (worker) {
      ended();
      by_id('said').textContent = 'Stopped';
      by_id('results').classList.remove('stale');
    } else {
      start(module);
    }
  };
  run.disabled = false;
  by_id('said').textContent = 'Ready';
} catch (wrong) {
  by_id('said').textContent = 'Not ready';
  by_id('wrong').textContent = `The program in this page does not start: ${wrong.message}`;
}
