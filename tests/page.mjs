// Checks a page of `kolmo bench compare --html` in headless Chromium, light and dark, at the widths
// of a telephone and a desktop.
//
// node tests/page.mjs PAGE.html [FOLDER for pictures]
//
// Requirements and checks: see tests/browser.mjs.
import { existsSync } from 'node:fs';
import { end, launch, look, open } from './browser.mjs';

const [page_file, pictures] = process.argv.slice(2);
if (!page_file || !existsSync(page_file)) {
  console.error('give the page to open');
  process.exit(2);
}
const browser = await launch(['--disable-gpu']);
for (const width of [360, 1280]) {
  for (const colorScheme of ['light', 'dark']) {
    const opened = await open(browser, page_file, width, colorScheme);
    const found = await look(opened);
    if (pictures) await opened.page.screenshot({ path: `${pictures}/${width}-${colorScheme}.png`, fullPage: true });
    console.log(`${opened.where}: ${found.cells} numbers`);
    await opened.close();
  }
}
await end(browser);
