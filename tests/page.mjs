// Opens a page of `kolmo bench compare --html` in headless Chromium, at the width of a telephone and of a desk, in light and
// dark: node tests/page.mjs PAGE.html [FOLDER for pictures]
//
// Needs playwright-core (npm install playwright-core, here or in the folder that KOLMO_PLAYWRIGHT names) and a Chromium
// (KOLMO_CHROMIUM names it; /usr/bin/chromium). tests/page.sh brings both together.
// Fails on console errors and warnings, on any request, on anything wider than the window but in a box that scrolls, on
// text smaller than 8 px, on charts that draw nothing and on text without contrast.
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const modules = resolve(process.env.KOLMO_PLAYWRIGHT ?? process.cwd(), 'package.json');
const { chromium } = createRequire(modules)('playwright-core');
const [page_file, pictures] = process.argv.slice(2);
const executablePath = process.env.KOLMO_CHROMIUM ?? '/usr/bin/chromium';
if (!page_file || !existsSync(page_file)) {
  console.error('give the page to open');
  process.exit(2);
}
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const browser = await chromium.launch({ executablePath, args: flags });
let failures = 0;
const wrong = (where, what) => {
  failures += 1;
  console.error(`${where}: ${what}`);
};
for (const [width, height] of [[360, 740], [1280, 900]]) {
  for (const colorScheme of ['light', 'dark']) {
    const where = `${width} px, ${colorScheme}`;
    const context = await browser.newContext({ viewport: { width, height }, colorScheme, deviceScaleFactor: 2 });
    const page = await context.newPage();
    page.on('console', (m) => ['error', 'warning'].includes(m.type()) && wrong(where, `console: ${m.text()}`));
    page.on('pageerror', (e) => wrong(where, `script: ${e.message}`));
    page.on('request', (r) => !r.url().startsWith('file:') && !r.url().startsWith('data:') && wrong(where, `asks for ${r.url()}`));
    await page.goto(pathToFileURL(resolve(page_file)).href);
    const found = await page.evaluate(() => {
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
      const figures = [...document.querySelectorAll('figure')];
      for (const figure of figures) {
        const svg = figure.querySelector('svg');
        const box = svg.getBoundingClientRect();
        const scale = box.width / svg.viewBox.baseVal.width;
        const marks = svg.querySelectorAll('circle, polyline, rect').length;
        const name = figure.dataset.chart;
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
      for (const cell of document.querySelectorAll('td, p, h2, figcaption')) {
        if (contrast(getComputedStyle(cell).color, behind(cell)) < 4) problems.push(`'${cell.textContent.slice(0, 40)}' has no contrast`);
      }
      return { problems: [...new Set(problems)], figures: figures.length, cells: document.querySelectorAll('td[data-value]').length };
    });
    found.problems.forEach((what) => wrong(where, what));
    if (found.figures === 0 || found.cells === 0) wrong(where, 'the page is empty');
    if (pictures) await page.screenshot({ path: `${pictures}/${width}-${colorScheme}.png`, fullPage: true });
    console.log(`${where}: ${found.figures} charts, ${found.cells} numbers`);
    await context.close();
  }
}
await browser.close();
process.exit(failures === 0 ? 0 : 1);
