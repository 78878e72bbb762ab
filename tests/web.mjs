// Computes chains in the page of web/ in headless Chromium, with SwiftShader as WebGPU device.
// Compares every number with the command line.
//
// node tests/web.mjs PAGE.html KOLMO [FOLDER for pictures]
//
// Requirements: see tests/browser.mjs.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { end, launch, look, open, wrong } from './browser.mjs';

const [page_file, kolmo, pictures] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'kolmo-web-'));
const device = process.env.KOLMO_PAGE_DEVICES ?? 'cpu';
const kept = (name) => join(folder, name);
execFileSync(kolmo, ['generate', 'tandem:7', '-o', kept('queues.tra'), '--quiet']);
writeFileSync(kept('repair.prism'), `ctmc
module repair
  broken : [0..3] init 0;
  [] broken < 3 -> 0.1 * (3 - broken) : (broken' = broken + 1);
  [] broken > 0 -> 1.7 : (broken' = broken - 1);
endmodule
label "down" = broken = 3;
`);
writeFileSync(kept('parts.prism'), `ctmc
const int N;
const double MU;
module parts
  broken : [0..N] init 0;
  [] broken < N -> 0.1 * (N - broken) : (broken' = broken + 1);
  [] broken > 0 -> MU : (broken' = broken - 1);
endmodule
label "down" = broken = N;
`);
writeFileSync(kept('junk.exe'), 'MZ');
writeFileSync(kept('queues.lab'), '0="init" 1="full"\n0: 0\n119: 1\n112: 1\n');

// With and without early termination, in one workgroup or in many, with and without a COO part.
const top = { top: '50' };
const cases = [
  { model: 'tandem:15', times: '0:1:10', ...top },
  { model: 'tandem:100', times: '0.01,0.02', ...top },
  { model: 'birth-death:40,0.9,1', times: '1,10,100', ...top },
  { model: 'birth-death:1000,0.9,1', times: '0.5,20', ...top },
  { model: 'wlan:2,2', times: '0.5,1', ...top },
  { model: 'wlan:6,3', times: '0.25,0.5', ...top },
  { model: 'circulant:2000,-1,1,30', times: '3,10', ...top },
  { model: 'queues.tra', times: '0:0.5:4', labels: 'full, init', files: ['queues.tra', 'queues.lab'] },
  { model: 'repair.prism', times: '1,10', labels: 'down', files: ['repair.prism'] },
  { model: 'parts.prism', times: '1,10', labels: 'down', files: ['parts.prism'], constants: 'N=3, MU=0.5' },
  { model: 'birth-death:60,2,1', times: '1e4,inf', stops: true, ...top },
  { model: 'tandem:5', times: '0:1:10', device: 'cpu', ...top },
];

/// Returns the report of the command line for a case.
function command_line({ model, times, labels = '', constants = '', top }) {
  const report = kept('report.json');
  const shown = labels ? labels.split(', ').flatMap((label) => ['--label', label]) : ['--top', top];
  const model_file = model.includes(':') ? model : kept(model);
  const open = constants ? ['--const', constants.replaceAll(' ', '')] : [];
  execFileSync(kolmo, ['transient', model_file, ...open, times.includes(':') ? '--times' : '--time', times, ...shown,
    '--precision', 'q64', '--device', device, '--quiet', '--report', report]);
  return JSON.parse(readFileSync(report));
}

/// Returns the report of the page for a case.
async function in_page(page, { files = [], device = 'webgpu', stops, ...fields }) {
  if (files.length > 0) await page.setInputFiles('#files', files.map(kept));
  await page.selectOption('#device', device);
  for (const [id, value] of Object.entries({ labels: '', constants: '', ...fields })) await page.fill(`#${id}`, value);
  await page.click('#run');
  await page.waitForFunction(() => document.getElementById('run').textContent === 'Compute', null, { timeout: 120_000 });
  const said = await page.textContent('#said');
  if (!said.startsWith('Done')) throw new Error(`${said}: ${await page.textContent('#wrong')}`);
  const report = await page.evaluate(async () => (await fetch(document.querySelector('#saved a').href)).json());
  await shown(page, report);
  return report;
}

/// Compares the errors shown on the page with those of its report.
///
/// If all terms were summed, the error is 1 − Σπ, else the bound.
async function shown(page, report) {
  const errors = report.per_time.map(({ time, deficit, stopped, bound }) =>
    (time === null || stopped !== null || deficit === null ? Object.values(bound).reduce((a, b) => a + b, 0) : deficit));
  const exact = report.per_time.every(({ time, stopped, deficit }) => time !== null && stopped === null && deficit !== null);
  const [heading, cells, facts] = await page.evaluate(() => [
    document.querySelector('#table thead th:nth-child(2)').textContent,
    [...document.querySelectorAll('#table tbody tr td:nth-child(2)')].map((cell) => Number(cell.dataset.value)),
    document.getElementById('facts').textContent]);
  const wanted = exact ? ['exact error', 'Largest error (exact)'] : ['error at most', 'Largest error (bound)'];
  if (heading !== wanted[0] || !facts.includes(wanted[1] + Math.max(...errors).toExponential(2))) {
    wrong('the heading of errors', `${heading}; ${facts}; wanted ${wanted}`);
  }
  const header = await page.textContent('header');
  if (/exact\s+error/.test(header)) wrong('the header', header);
  if (JSON.stringify(cells) !== JSON.stringify(errors)) wrong('errors shown', `${cells} of ${errors}`);
}

/// Model files can be removed, and other files are rejected.
async function files_are_kept_apart(page) {
  await page.setInputFiles('#files', ['queues.tra', 'junk.exe'].map(kept));
  await page.waitForFunction(() => document.getElementById('refused').textContent !== '');
  const refused = await page.textContent('#refused');
  if (!refused.startsWith('junk.exe: ')) wrong('a file that is none of a model', refused);
  if (await page.textContent('#what') !== 'File') wrong('a file', 'its name is under Parameters');
  const held = () => page.$$eval('#held li', (all) => all.map((one) => one.firstChild.textContent));
  if (`${await held()}`.includes('junk')) wrong('files', `${await held()}`);
  const buttons = () => page.$$('#held button');
  for (let left = (await buttons()).length; left > 0; left -= 1) await (await buttons())[0].click();
  if ((await held()).length > 0 || await page.inputValue('#model') !== '') wrong('files that are removed', `${await held()}`);
}

/// A wrong model gives an error message, and a long run can be stopped.
async function wrong_and_stopped(page) {
  await page.fill('#model', 'tandem:0.5');
  await page.fill('#labels', '');
  await page.click('#run');
  await page.waitForFunction(() => document.getElementById('wrong').textContent !== '');
  const said = await page.textContent('#wrong');
  if (!said.includes('tandem:0.5')) wrong('a model that is none', said);
  // A result, which must not look like that of the next run.
  await in_page(page, { model: 'tandem:5', times: '1' });
  await page.fill('#model', 'wlan:12,6');
  await page.fill('#times', '100');
  await page.click('#run');
  if (await page.$eval('#results', (all) => !all.classList.contains('stale'))) wrong('a run', 'shows the answer before as its own');
  await page.waitForFunction(() => / of .* multiplications/.test(document.getElementById('said').textContent), null, { timeout: 120_000 });
  await page.click('#run');
  if (await page.textContent('#said') !== 'Stopped') wrong('a run that is stopped', await page.textContent('#said'));
}

const browser = await launch(['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-unsafe-swiftshader']);
const desk = await open(browser, page_file, 1280, 'light');
for (const one of cases) {
  const where = `${one.model}, times ${one.times}, ${one.device ?? 'webgpu'}`;
  try {
    const [theirs, own] = [await in_page(desk.page, one), command_line(one)];
    const [device] = theirs.devices;
    if (device.backend !== (one.device ?? 'webgpu') || device.precision !== 'q64') wrong(where, JSON.stringify(device));
    if (one.stops && theirs.per_time.every(({ stopped }) => stopped === null)) wrong(where, 'no sweep stops');
    const numbers = (report) => report.per_time.map(({ time, values, mass, deficit, bound, stopped }) =>
      ({ time, values, mass, deficit, stopped, bound: deficit === null ? bound : null }));
    const [a, b] = [numbers(theirs), numbers(own)].map((all) => JSON.stringify(all));
    if (a !== b) wrong(where, `the page has\n${a}\nand the command line\n${b}`);
    const values = own.per_time.reduce((sum, time) => sum + time.values.length, 0);
    console.log(`${where}: ${own.n} states, ${theirs.terms} steps, ${values} numbers and ${own.per_time.length} errors `
      + `equal, ${Math.round(theirs.terms / theirs.seconds.solve)} steps/s on ${device.name}`);
  } catch (failed) {
    wrong(where, failed.message);
  }
}
await files_are_kept_apart(desk.page);
await wrong_and_stopped(desk.page);
await desk.close();

for (const width of [390, 1280]) {
  for (const colorScheme of ['light', 'dark']) {
    const opened = await open(browser, page_file, width, colorScheme);
    if (!await opened.page.isVisible('#begin')) wrong(opened.where, 'the page says not how to begin');
    if (pictures) await opened.page.screenshot({ path: `${pictures}/web-${width}-${colorScheme}-first.png` });
    await in_page(opened.page, { model: 'tandem:5', times: '0:0.5:10', top: '5' });
    const wide = await opened.page.$eval('.scroll', (table) => table.scrollWidth - table.clientWidth);
    if (wide > 0 || await opened.page.isVisible('#begin')) wrong(opened.where, `the table is ${wide} px too wide`);
    const found = await look(opened);
    if (found.figures === 0) wrong(opened.where, 'no chart');
    if (pictures) await opened.page.screenshot({ path: `${pictures}/web-${width}-${colorScheme}.png`, fullPage: true });
    console.log(`${opened.where}: ${found.figures} charts, ${found.cells} numbers`);
    await opened.close();
  }
}
await browser.close();

// Without WebGPU, the page prints a notice and computes on the CPU.
const without = await launch(['--disable-gpu', '--disable-features=WebGPUService']);
const bare = await open(without, page_file, 390, 'light');
await bare.page.waitForFunction(() => document.getElementById('notice').textContent !== '');
await in_page(bare.page, { model: 'tandem:5', times: '1,2', top: '5', device: 'cpu' });
if ((await look(bare)).figures === 0) wrong(bare.where, 'no chart');
if (pictures) await bare.page.screenshot({ path: `${pictures}/web-without.png`, fullPage: true });
rmSync(folder, { recursive: true });
await end(without);
