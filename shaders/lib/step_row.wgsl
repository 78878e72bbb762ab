// The step of a row with packed entries, as defined in lib/entries.wgsl.

fn step_row(place: u32) {
    let row = row_of(place);
    let i = p.first_row + row;
    let own = x[p.own + i];
    let leave = exit[i];
    let s = row_sum(row, p.own + i, with_own(leave, own, no_products()));
    let added = terms();
    finish(place, i, leave, own, s, added, held(added.open, i));
}
