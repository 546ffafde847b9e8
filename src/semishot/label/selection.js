// The image under the cursor, and the images that are selected.

export function currentImage(page) {
  const section = page.state && page.grid.section(page.cursor.section);
  const row = section?.rows[page.cursor.index];
  return row === undefined ? null : page.grid.state.image[row];
}

/** What an answer is for. */
export function chosen(page) {
  if (page.selected.size) return [...page.selected];
  const image = currentImage(page);
  return image === null ? [] : [image];
}

export function toggle(selected, image) {
  if (!selected.delete(image)) selected.add(image);
}

export function focusTiles(page) {
  page.grid.tileAt(page.cursor.section, page.cursor.index)?.focus({ preventScroll: true });
}

/** The image stays under the cursor if it is still in its section; else the next one takes its place. */
export function settleCursor(page, image, hadFocus) {
  const { state, grid } = page;
  let section = grid.section(page.cursor.section);
  if (!section || !section.shown) section = grid.sections.find((one) => one.shown);
  if (!section) { page.cursor = { section: null, index: 0 }; return; }
  let index = section.key === page.cursor.section ? page.cursor.index : 0;
  const row = image === null ? undefined : state.rowOf.get(image);
  if (row !== undefined && section.rows[index] !== row) {
    const now = section.rows.indexOf(row);
    if (now >= 0 && now < section.shown) index = now;
  }
  const cursor = page.cursor = { section: section.key, index: Math.min(index, section.shown - 1) };
  for (const tile of grid.tiles.values()) {
    const here = tile.section === cursor.section && tile.index === cursor.index;
    tile.classList.toggle("cursor", here);
    tile.tabIndex = here ? 0 : -1;
    if (here && hadFocus) tile.focus({ preventScroll: true });
  }
}
