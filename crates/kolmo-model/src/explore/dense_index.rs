//! Dense state index: a cell for each combination of the modules' reachable local states.
//!
//! Local states are those that a module can reach if the other modules may be in any state. A
//! module with a conserved quantity, such as the parts in a machine, reaches few of its
//! combinations. The box of all modules' combinations is then dense enough for one bit per cell.

use std::collections::HashMap;
use std::ops::Range;

use crate::bytecode::{Code, Term};
use crate::instance::{GuardedCommand, Instance};

use super::layout::{Field, Packing, StateKey};
use super::program::only_value;

/// Maximum number of bits of the variables in one table.
const BITS: u32 = 16;

/// Maximum number of cells, combinations of the modules' reachable local states.
const MOST: u64 = 1 << 31;

/// Maximum number of next combinations tried per table. Beyond it all are taken as reachable.
const TRIED: usize = 1 << 19;

/// Offset of an unreachable combination, above the number of any cell.
const OUTSIDE: u32 = u32::MAX;

/// Mapping between states and cell numbers, in the order of states.
pub(super) enum Cells {
    /// The cell number is the packed state.
    Packed(u64),
    Parts(Vec<OffsetTable>, u64),
}

/// Table over the combinations of values of some variables of a module.
///
/// It has the offset of each combination in the dense index, and lists those that are reachable.
pub(super) struct OffsetTable {
    word: usize,
    shift: u32,
    offsets: Vec<u32>,
    reached: Vec<u32>,
}

impl Cells {
    /// Creates the mapping for all states reachable from `from`.
    ///
    /// `None` if they are too many, or if other instances of the model may reach more states.
    pub(super) fn new<const W: usize>(
        instance: &Instance,
        layout: &Packing,
        from: &[StateKey<W>],
    ) -> Option<Self> {
        if layout.words == 1 && layout.bits <= 32 {
            return Some(Self::Packed(1 << layout.bits));
        }
        if !instance.others.is_empty() {
            return None;
        }
        let (mut parts, mut count) = (Vec::new(), 1);
        for range in ranges(instance, layout)?.into_iter().rev() {
            let fields = &layout.fields[range.clone()];
            let (word, shift, mask) = (fields[0].word, lowest(fields), (1 << bits(fields)) - 1);
            let from = from.iter().map(|key| key[word] >> shift & mask);
            let reached = reached(instance, layout, &range, from);
            let reached: Vec<u32> =
                (0..).zip(reached).filter(|(_, reached)| *reached).map(|(c, _)| c).collect();
            let mut offsets = vec![OUTSIDE; 1 << bits(fields)];
            for (number, combination) in (0..).zip(&reached) {
                offsets[*combination as usize] = u32::try_from(number * count).unwrap_or(OUTSIDE);
            }
            count *= reached.len() as u64;
            parts.push(OffsetTable { word, shift, offsets, reached });
            if count > MOST {
                return None;
            }
        }
        Some(Self::Parts(parts, count))
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Packed(count) | Self::Parts(_, count) => *count,
        }
    }

    #[inline]
    pub(super) fn of<const W: usize>(&self, key: &StateKey<W>) -> u64 {
        match self {
            Self::Packed(_) => key[0],
            Self::Parts(parts, _) => parts
                .iter()
                .map(|part| {
                    let combination = (key[part.word] >> part.shift) as usize & (part.offsets.len() - 1);
                    u64::from(part.offsets[combination])
                })
                .sum(),
        }
    }

    /// Unpacks the state of a cell into `key`, which must be zero.
    pub(super) fn state<const W: usize>(&self, mut cell: u64, key: &mut StateKey<W>) {
        match self {
            Self::Packed(_) => key[0] = cell,
            Self::Parts(parts, _) => {
                for part in parts {
                    let count = part.reached.len() as u64;
                    key[part.word] |= u64::from(part.reached[(cell % count) as usize]) << part.shift;
                    cell /= count;
                }
            }
        }
    }
}

/// Splits the variables into tables, each within one module and one word.
///
/// Returns `None` if a variable has more than [`BITS`] bits.
fn ranges(instance: &Instance, layout: &Packing) -> Option<Vec<Range<usize>>> {
    let modules = &instance.model.0.modules;
    let of_modules: usize = modules.iter().map(|module| module.variables.len()).sum();
    let mut end = layout.fields.len() - of_modules;
    let mut owners = Vec::from([(0, end)]);
    for module in modules {
        owners.push((end, end + module.variables.len()));
        end += module.variables.len();
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (first, end) in owners {
        let (mut start, mut bits) = (first, 0);
        for v in first..end {
            let field = &layout.fields[v];
            if field.bits() > BITS {
                return None;
            }
            if bits + field.bits() > BITS || field.word != layout.fields[start].word {
                ranges.push(start..v);
                (start, bits) = (v, 0);
            }
            bits += field.bits();
        }
        if start < end {
            ranges.push(start..end);
        }
    }
    Some(ranges)
}

/// Effect of one command on the variables of a table.
struct Alone {
    guards: Vec<Code>,
    /// Per update, variables and next values (`None`: depends on variables of other tables).
    updates: Vec<Vec<(usize, Option<Code>)>>,
}

impl Alone {
    fn new(command: &GuardedCommand, range: &Range<usize>) -> Self {
        let own = |term: &Term| {
            let mut own = true;
            term.each_variable(&mut |v| own &= range.contains(&v));
            own
        };
        let mut guards = Vec::new();
        command.guard.clone().conjuncts(&mut guards);
        let updates = command.updates.iter().map(|(_, assignments)| {
            let assignments = assignments.iter().filter(|(v, _)| range.contains(v));
            assignments.map(|(v, next)| (*v, own(next).then(|| Code::new(next)))).collect::<Vec<_>>()
        });
        Self {
            guards: guards.iter().filter(|guard| own(guard)).map(Code::new).collect(),
            updates: updates.filter(|update| !update.is_empty()).collect(),
        }
    }
}

/// Marks the reachable combinations of a table's variables, for any values of the others.
///
/// Guards on other variables are taken as true, and next values that depend on them as any value.
/// Next values that fail or are out of range are left out: the search reports them if it gets
/// there.
fn reached(
    instance: &Instance,
    layout: &Packing,
    range: &Range<usize>,
    from: impl Iterator<Item = u64>,
) -> Vec<bool> {
    let fields = &layout.fields[range.clone()];
    let (shift, bits) = (lowest(fields), bits(fields));
    // Commands without a guard `v = 5`, and others by this variable and value.
    let (mut commands, mut by_value) = (Vec::new(), HashMap::<_, Vec<Alone>>::new());
    for command in &instance.commands {
        let alone = Alone::new(command, range);
        let mut guards = Vec::new();
        command.guard.clone().conjuncts(&mut guards);
        match guards.iter().filter_map(only_value).find(|(v, _)| range.contains(v)) {
            _ if alone.updates.is_empty() => {}
            Some(key) => by_value.entry(key).or_default().push(alone),
            None => commands.push(alone),
        }
    }
    let mut reached = vec![false; 1 << bits];
    let (mut open, mut tried) = (Vec::new(), 0);
    let (mut values, mut stack) = (vec![0; range.end], Vec::new());
    let mut next: Vec<u64> = from.collect();
    loop {
        for combination in next.drain(..) {
            if !std::mem::replace(&mut reached[combination as usize], true) {
                open.push(combination);
            }
        }
        let Some(combination) = open.pop() else { return reached };
        for (value, field) in values[range.clone()].iter_mut().zip(fields) {
            *value = field.low.wrapping_add((combination >> (field.shift - shift) & field.mask) as i64);
        }
        let of_values = range.clone().filter_map(|v| by_value.get(&(v, values[v]))).flatten();
        for command in commands.iter().chain(of_values) {
            if command.guards.iter().any(|guard| guard.run(&values, &mut stack) == Ok(0)) {
                continue;
            }
            for update in &command.updates {
                let start = next.len();
                next.push(combination);
                for (v, value) in update {
                    let field = &layout.fields[*v];
                    let value = value.as_ref().map(|code| code.run(&values, &mut stack).map(|v| v as i64));
                    let cells = match value {
                        None => 0..field.width + 1,
                        Some(Ok(value)) if field.holds(value) => {
                            let cell = value.wrapping_sub(field.low) as u64;
                            cell..cell + 1
                        }
                        Some(_) => 0..0,
                    };
                    let place = field.shift - shift;
                    let before = next.split_off(start);
                    tried += before.len() * (cells.end - cells.start) as usize;
                    if tried > TRIED {
                        reached.fill(true);
                        return reached;
                    }
                    next.extend(before.iter().flat_map(|before| {
                        let rest = before & !(field.mask << place);
                        cells.clone().map(move |cell| rest | cell << place)
                    }));
                }
            }
        }
    }
}

fn bits(fields: &[Field]) -> u32 {
    fields.iter().map(Field::bits).sum()
}

/// Lowest bit of these variables in their word.
fn lowest(fields: &[Field]) -> u32 {
    fields.iter().filter(|field| field.bits() > 0).map(|field| field.shift).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrismModel;

    /// `a` keeps 12 parts in four places; `b` is set by another module; `c` never moves.
    const KEEPS: &str = "ctmc
        module a w : [0..12] init 12; x : [0..12]; y : [0..12]; z : [0..12];
        [in] w>0 -> 1 : (w'=w-1) & (x'=x+1); [] x>0 & b=2 -> 1 : (x'=x-1) & (y'=y+1);
        [] y>0 -> 1 : (y'=y-1) & (z'=z+1); [out] z>0 -> 1 : (z'=z-1) & (w'=w+1); endmodule
        module other b : [0..9] init 4; [] b<3 & w=0 -> 1 : (b'=x) + 1 : (b'=0); [] b>=3 -> 1 : (b'=2); endmodule
        module fixed c : [0..65535] init 7; d : [5..5]; [] c>7 -> 1 : (c'=c+1); endmodule";

    #[test]
    fn modules_by_themselves_make_a_box() {
        let instance = PrismModel::parse("keeps", KEEPS).unwrap().with_constants(&[]).unwrap();
        let layout = Packing::new(&instance.variables);
        let key = |values: [i64; 7]| {
            let mut key = [0];
            layout.pack(&values, &mut key);
            key
        };
        let cells = Cells::new(&instance, &layout, &[key([12, 0, 0, 0, 4, 7, 5])]).unwrap();
        // 15 over 3 ways of placing the parts; b may be x, which may have any value of its range.
        assert_eq!(cells.count(), 455 * 10);
        assert_eq!(cells.of(&key([0, 0, 0, 12, 0, 7, 5])), 0);
        assert_eq!(cells.of(&key([0, 0, 0, 12, 9, 7, 5])), 9);
        assert_eq!(cells.of(&key([0, 0, 1, 11, 3, 7, 5])), 13);
        assert_eq!(cells.of(&key([12, 0, 0, 0, 9, 7, 5])), cells.count() - 1);
        let mut state = [0];
        cells.state(13, &mut state);
        assert_eq!(state, key([0, 0, 1, 11, 3, 7, 5]));
        assert!(cells.of(&key([12, 0, 0, 1, 0, 7, 5])) >= u64::from(OUTSIDE));
        assert!(cells.of(&key([12, 0, 0, 0, 0, 8, 5])) >= u64::from(OUTSIDE));
    }
}
