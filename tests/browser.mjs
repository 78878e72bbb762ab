// Shared code of the tests of pages: headless Chromium, and the defects of a page as it is drawn.
//
// Needs playwright-core (npm install playwright-core, here or in the folder KOLMO_PLAYWRIGHT).
// Needs Chromium (KOLMO_CHROMIUM, by default /usr/bin/chromium). tests/web.sh sets these
// up.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const modules = resolve(process.env.KOLMO_PLAYWRIGHT ?? process.cwd(), 'package.json');
const { chromium } = createRequire(modules)('playwright-core');
const executablePath = process.env.KOLMO_CHROMIUM ?? '/usr/bin/chromium';

let failures = 0;
export const wrong = (where, what) => {
  failures += 1;
  console.error(`${where}: ${what}`);
};

export function launch(flags) {
  const args = ['--no-sandbox', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', ...flags];
  return chromium.launch({ executablePath, args });
}

/// Opens a file in a window of this width. Console errors, warnings and any request are failures.
export async function open(browser, file, width, colorScheme) {
  const where = `${width} px, ${colorScheme}`;
  const viewport = { width, height: width < 600 ? 740 : 900 };
  const context = await browser.newContext({ viewport, colorScheme, deviceScaleFactor: 2 });
  const page = await context.newPage();
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && wrong(where, `console: ${m.text()}`));
  page.on('pageerror', (e) => wrong(where, `script: ${e.message}`));
  page.on('request', (r) => !/^(file|data|blob):/.test(r.url()) && wrong(where, `asks for ${r.url()}`));
  await page.goto(pathToFileURL(resolve(file)).href);
  return { where, page, close: () => context.close() };
}

/// Checks a page, and returns the numbers of charts and of cells with a number.
///
/// Failures are a page wider than the window, text smaller than 8 px or without contrast, empty
/// charts, and no cell with a number.
export async function look({ where, page }) {
  const found = await page.evaluate(inspect);
  found.problems.forEach((what) => wrong(where, what));
  if (found.cells === 0) wrong(where, 'the page is empty');
  return found;
}

function inspect() {
  const problems = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) problems.push(`the page is ${root.scrollWidth} px wide`);
  const numbers = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = numbers(color).map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = getComputedStyle(e).backgroundColor;
      if (numbers(color)[3] !== 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const figures = [...document.querySelectorAll('figure')].filter((figure) => figure.checkVisibility());
  for (const figure of figures) {
    const svg = figure.querySelector('svg');
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const marks = svg.querySelectorAll('circle, polyline, rect').length;
    const name = figure.dataset.chart ?? figure.id;
    if (box.width < 280 || box.height < 30 || marks < 1) problems.push(`${name} draws nothing: ${box.width} x ${box.height}, ${marks} marks`);
    for (const text of svg.querySelectorAll('text')) {
      const size = parseFloat(text.getAttribute('font-size')) * scale;
      if (size < 8) problems.push(`${name}: text of ${size.toFixed(1)} px`);
      const at = text.getBoundingClientRect();
      if (at.right > box.right + 1 || at.left < box.left - 1) problems.push(`${name}: '${text.textContent.trim()}' is cut off`);
      if (contrast(getComputedStyle(text).fill, behind(figure)) < 4) problems.push(`${name}: '${text.textContent.trim()}' has no contrast`);
    }
    for (const mark of svg.querySelectorAll('circle, rect, polyline')) {
      const style = getComputedStyle(mark);
      const color = style.fill === 'none' ? style.stroke : style.fill;
      if (!mark.closest('.grid') && contrast(color, behind(figure)) < 1.15) problems.push(`${name}: a mark in ${color} cannot be seen`);
    }
  }
  for (const cell of document.querySelectorAll('td, th, p, h2, dt, dd, label, button, figcaption')) {
    if (!cell.checkVisibility() || cell.disabled) continue;
    if (contrast(getComputedStyle(cell).color, behind(cell)) < 4) problems.push(`'${cell.textContent.slice(0, 40)}' has no contrast`);
  }
  return { problems: [...new Set(problems)], figures: figures.length, cells: document.querySelectorAll('td[data-value]').length };
}

/// Ends the program, with exit code 1 after a failure.
export async function end(browser) {
  await browser.close();
  process.exit(failures === 0 ? 0 : 1);
}
