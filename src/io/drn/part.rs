//! A rank's part of a DRN file: blocks that begin with a line `state ...`.

use std::collections::HashMap;
use std::path::Path;

use super::header::Header;
use super::{Model, names, warnings};
use crate::Result;
use crate::io::text::{self, Line, Lines, Parted};
use crate::parallel::*;
use crate::ranks::Ranks;
use crate::transient::chain::distributed_rewards::move_to_home;
use crate::transient::chain::transitions::TransitionList;
use crate::transient::chain::{ChainFile, Labels, Reward};

/// Maximum number of labelled states that all ranks together exchange in one round.
const AT_ONCE: usize = 1 << 26;

/// Approximate bytes of a transition's line.
const LINE: u64 = 16;

/// Content of a rank's blocks.
pub(in crate::io) struct Part {
    pub(in crate::io) transitions: TransitionList,
    header: Header,
    /// Labels with this part's states.
    labels: Labels,
    /// One vector per reward, for this part's first states; later states have reward 0.
    rewards: Vec<Vec<f64>>,
    told: Told,
    /// True if comments may hold names of states.
    named: bool,
}

/// Summary of a part that all ranks receive.
#[derive(Clone, Copy, Default)]
struct Told {
    /// Number of its first state.
    first: u64,
    /// Number of its states.
    states: u64,
    choices: u64,
    /// Number of rewards in its lists.
    rewards: u64,
    /// True if a list of rewards was empty before their number was known.
    unlisted: bool,
    /// True if all rewards are finite.
    finite: bool,
}

/// Number of words of an encoded summary.
const WORDS: usize = 5;

impl Told {
    fn words(&self) -> [u64; WORDS] {
        let flags = u64::from(self.unlisted) | u64::from(self.finite) << 1;
        [self.first, self.states, self.choices, self.rewards, flags]
    }

    fn of(&[first, states, choices, rewards, flags]: &[u64; WORDS]) -> Self {
        Self { first, states, choices, rewards, unlisted: flags & 1 == 1, finite: flags & 2 == 2 }
    }

    /// Combines the summaries of all parts; `None` unless they form a file with `states` states.
    fn together(parts: &[Self], states: u64) -> Option<Self> {
        let mut all = Self { finite: true, ..Self::default() };
        for part in parts {
            if part.states > 0 && part.first != all.states {
                return None;
            }
            all.states += part.states;
            all.choices += part.choices;
            all.rewards = all.rewards.max(part.rewards);
            all.unlisted |= part.unlisted;
            all.finite &= part.finite;
        }
        let listed = |part: &Self| part.rewards == all.rewards || part.rewards == 0;
        // An empty list before others counts as absent, after others as an error; the serial reader
        // decides.
        let alike = parts.iter().all(listed) && !(all.unlisted && all.rewards > 0);
        (all.states == states && alike && all.finite).then_some(all)
    }
}

/// Reads a rank's part of a file: the blocks that begin in its share of the bytes.
///
/// Returns `None` for files that have to be read whole, because of their form or an error.
///
/// # Errors
/// Errors of [`read`](super::read), with line numbers that may be wrong.
pub(in crate::io) fn part(path: &Path, ranks: Ranks) -> Result<Option<Part>> {
    let Some(parted) = Parted::open(path, ranks)? else { return Ok(None) };
    let mut lines = Lines::new(&parted.start);
    let header = Header::read(&mut lines, path)?;
    let body = lines.offset();
    let pieces = parted.blocks(body, ranks, begins)?;
    let named = parted.start.windows(3).any(|bytes| bytes == b"//[");
    drop(parted);
    let mut model = Model::new(&header, path, None);
    model.list = TransitionList::with_capacity(pieces.about(LINE));
    let lines =
        |model: &mut Model, text: &[u8]| Lines::new(text).try_for_each(|line| model.line(line, |_, _, _| {}));
    let mut fits = true;
    let read = pieces.each(&mut |bytes| {
        // Lines of a state that began in the previous piece.
        let before: usize =
            bytes.split_inclusive(|&b| b == b'\n').take_while(|line| !begins(line)).map(<[u8]>::len).sum();
        let (before, states) = bytes.split_at(before);
        lines(&mut model, before)?;
        let parsed = text::blocks(states, begins).into_par_iter().map(|text| {
            let mut part = Model::new(&header, path, None);
            lines(&mut part, text).map(|()| part)
        });
        for part in parsed.collect::<Vec<_>>() {
            fits &= model.append(part?)?;
        }
        Ok(())
    })?;
    let Some(()) = read.filter(|()| fits) else { return Ok(None) };
    model.end_state()?;
    let finite = model.rewards.iter().flatten().all(|value| value.is_finite());
    let told = Told {
        first: model.first.unwrap_or(0),
        states: model.begun(),
        choices: model.choices,
        rewards: model.rewards.len() as u64,
        unlisted: model.unlisted,
        finite,
    };
    let Model { list: transitions, labels, rewards, .. } = model;
    Ok(Some(Part { transitions, header, labels, rewards, told, named }))
}

/// True if this line begins the block of a state.
fn begins(line: &[u8]) -> bool {
    let line = Line { number: 1, bytes: line.trim_ascii() };
    line.fields().next() == Some(b"state")
}

/// Content of a file except its transitions.
pub(in crate::io) struct Beside {
    /// Labels with the states of all ranks.
    pub(in crate::io) labels: Labels,
    pub(in crate::io) warnings: Vec<String>,
    /// Values of this rank's home block of states.
    pub(in crate::io) rewards: Vec<Reward>,
}

impl Part {
    /// Returns the content of a file read by one process; `None` if the file has an error.
    pub(super) fn into_file(mut self, path: &Path) -> Option<ChainFile> {
        let (states, transitions) = (self.header.states as usize, std::mem::take(&mut self.transitions));
        let names = if self.named { names(&text::read(path).ok()?) } else { None };
        let Beside { labels, warnings, rewards } = self.beside(path, Ranks::ALONE)?;
        Some(ChainFile { states, transitions, labels, rewards, names, warnings, ..ChainFile::default() })
    }

    /// Returns the number of states of the whole file, from its header.
    pub(in crate::io) fn states(&self) -> u64 {
        self.header.states
    }

    /// Combines labels, rewards and warnings of all parts; `None` if the file has an error.
    ///
    /// Collective.
    pub(in crate::io) fn beside(self, path: &Path, ranks: Ranks) -> Option<Beside> {
        let told: Vec<Told> =
            ranks.all_gather(&self.told.words()).iter().map(|words| told_of(words)).collect();
        let all = Told::together(&told, self.header.states)?;
        let (states, first) = (self.header.states as usize, self.told.first);
        let mut rewards = Vec::new();
        for number in 0..all.rewards as usize {
            let own = self.rewards.get(number).map_or(&[][..], |values| values);
            let values = move_to_home(states, first as usize, own, ranks);
            rewards.push(Reward { name: self.header.reward(number), values });
        }
        let warnings = warnings(path, &self.header, all.choices);
        Some(Beside { labels: gather_labels(self.labels, ranks), warnings, rewards })
    }
}

fn told_of(words: &[u64]) -> Told {
    Told::of(words.try_into().expect("all ranks send the same number of words"))
}

/// Gathers the labels of all parts, in the order of their first occurrence. Collective.
fn gather_labels(own: Labels, ranks: Ranks) -> Labels {
    // A label never contains a line end.
    let names: Vec<String> = own.sets.iter().map(|(name, _)| format!("{name}\n")).collect();
    let lengths: Vec<u64> = own.sets.iter().map(|(_, set)| set.len() as u64).collect();
    let (names, lengths) = (ranks.all_gather_text(&names.concat()), ranks.all_gather(&lengths));
    let mine: Vec<u32> = own.sets.into_iter().flat_map(|(_, set)| set).collect();
    let piece = (AT_ONCE / ranks.size()).max(1);
    let rounds = ranks.all_reduce_max(mine.len().div_ceil(piece) as f64) as usize;
    let mut states = vec![Vec::new(); ranks.size()];
    for round in 0..rounds {
        let from = (round * piece).min(mine.len());
        let told = ranks.all_gather(&mine[from..(from + piece).min(mine.len())]);
        states.iter_mut().zip(told).for_each(|(states, more)| states.extend(more));
    }
    drop(mine);
    let mut labels = Labels::default();
    let mut positions: HashMap<String, usize> = HashMap::new();
    for ((names, lengths), states) in names.iter().zip(&lengths).zip(&states) {
        let mut from = 0;
        for (name, &length) in names.split_terminator('\n').zip(lengths) {
            let position = *positions.entry(name.to_owned()).or_insert_with(|| {
                labels.sets.push((name.to_owned(), Vec::new()));
                labels.sets.len() - 1
            });
            labels.sets[position].1.extend(&states[from..from + length as usize]);
            from += length as usize;
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::drn::{parse, read};

    const HEAD: &str =
        "// of Storm\n@type: CTMC\n@reward_models\nup jumps\n@nr_states: 4\n@nr_choices: 5\n@model\n";
    const BODY: &str = "// a comment\nstate 0 !2 [1, 0] init \"all state\"\n//[x]\n\taction 0 [0, 2]\n\t\t1 : 2\n\
        state 1 !0.5\r\n\n\taction go\r\n\t\t2 : 0.5\n  state 2 [0, -0] \"all state\" end\n\taction state [0, 1]\n\t\t0 : 1/4\n\
        \t\t2 : 3\nstate 3 !1 odd \"all state\" // state 4\n\taction 1\n\t\t0 : 1";

    fn parts(path: &Path, size: usize) -> Vec<Part> {
        let part = |rank| part(path, Ranks::simulated(rank, size)).expect("no error").expect("a part");
        (0..size).map(part).collect()
    }

    #[test]
    fn parts_are_the_file_wherever_it_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.drn");
        std::fs::write(&path, format!("{HEAD}{BODY}")).unwrap();
        let whole = parse(&std::fs::read(&path).unwrap(), &path).unwrap();
        assert_eq!((whole.states, whole.warnings.len()), (4, 1), "{:?}", whole.warnings);
        // With as many ranks as bytes the text is split at every byte.
        for size in 1..BODY.len() + 3 {
            let parts = parts(&path, size);

            let told: Vec<Told> = parts.iter().map(|part| Told::of(&part.told.words())).collect();
            let all = Told::together(&told, 4).expect("a whole file");
            assert_eq!((all.states, all.choices, all.rewards), (4, 4, 2), "{size} ranks");
            let said = warnings(&path, &parts[0].header, all.choices);
            assert_eq!(said, whole.warnings, "{size} ranks");
            let list = |of: fn(&TransitionList) -> Vec<u64>| {
                parts.iter().flat_map(|part| of(&part.transitions)).collect::<Vec<u64>>()
            };
            for of in [
                |list: &TransitionList| list.from.iter().map(|&s| u64::from(s)).collect(),
                |list: &TransitionList| list.to.iter().map(|&s| u64::from(s)).collect(),
                |list: &TransitionList| list.rate.iter().map(|r| r.to_bits()).collect(),
            ] {
                assert_eq!(list(of), of(&whole.transitions), "{size} ranks");
            }
            for (name, set) in &whole.labels.sets {
                let sets: Vec<u32> = parts
                    .iter()
                    .flat_map(|part| part.labels.get(name).unwrap_or_default())
                    .copied()
                    .collect();
                assert_eq!(&sets, set, "{size} ranks: {name}");
            }
            for (number, reward) in whole.rewards.iter().enumerate() {
                let mut values = vec![0.0; 4];
                for part in &parts {
                    let own = &part.rewards[number];
                    values[part.told.first as usize..][..own.len()].copy_from_slice(own);
                }
                assert_eq!(values, reward.values, "{size} ranks");
            }
        }
    }

    #[test]
    fn parts_of_several_pieces_are_the_file() {
        const STATES: u32 = 60_000;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.drn");
        let mut text = format!("@type: CTMC\n@nr_states: {STATES}\n@nr_choices: 1\n@model\n");
        for state in 0..STATES {
            text += &format!("state {state} !5 [{state}] l{}\n\taction 0 // jump\n", state % 3);
            text += &format!("\t\t{} : 2\n\t\t{} : 3\n", state / 2, (state + 7) % STATES);
        }
        assert!(text.len() > 3 << 20, "pieces have a MiB");
        std::fs::write(&path, &text).unwrap();
        let whole = parse(&std::fs::read(&path).unwrap(), &path).unwrap();
        assert_eq!(whole.warnings.len(), 1);
        for size in [1, 2] {
            let parts = parts(&path, size);
            let mut transitions = TransitionList::default();
            parts.iter().for_each(|part| transitions.append(&part.transitions));
            assert_eq!(transitions, whole.transitions, "{size} ranks");
            let told: Vec<Told> = parts.iter().map(|part| part.told).collect();
            let all = Told::together(&told, STATES.into()).expect("a whole file");
            let said = warnings(&path, &parts[0].header, all.choices);
            assert_eq!(said, whole.warnings, "{size} ranks");
        }
        let beside = part(&path, Ranks::ALONE).unwrap().unwrap().beside(&path, Ranks::ALONE).unwrap();
        assert_eq!((beside.labels, beside.rewards), (whole.labels, whole.rewards));
    }

    #[test]
    fn a_part_alone_says_what_the_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.drn");
        std::fs::write(&path, format!("{HEAD}{BODY}")).unwrap();
        let whole = parse(&std::fs::read(&path).unwrap(), &path).unwrap();

        let beside = part(&path, Ranks::ALONE).unwrap().unwrap().beside(&path, Ranks::ALONE).unwrap();

        assert_eq!(beside.labels, whole.labels);
        assert_eq!(beside.rewards, whole.rewards);
        assert_eq!(beside.warnings, whole.warnings);
    }

    #[test]
    fn parts_that_are_no_file_are_seen_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.drn");
        for body in [
            BODY.replace("state 2 ", "state 3 "),
            BODY.replace("state 1 !0.5", "// nothing"),
            [BODY, "\nstate 4"].concat(),
            BODY.replace("[1, 0]", "[1]"),
            BODY.replace("[0, 2]", "[0, 1e308]").replace("1 : 2", "1 : 1e308"),
            BODY.replace("state 3 !1 odd", "stat 3"),
            BODY.replace("state 1 !0.5", "state 1 !0.6"),
            BODY.replace("// a comment", "\taction 0"),
            BODY.replace(" odd", " o\0d"),
        ] {
            std::fs::write(&path, format!("{HEAD}{body}")).unwrap();
            let alone = read(&path).expect_err("no file").to_string();
            for size in [1, 2, 3, 5, 40, body.len()] {
                let of = |rank| part(&path, Ranks::simulated(rank, size)).ok().flatten();
                let told: Option<Vec<Told>> = (0..size).map(|rank| of(rank).map(|part| part.told)).collect();
                let all = told.and_then(|told| Told::together(&told, 4));
                assert!(all.is_none(), "{size} ranks: {alone}");
            }
        }
    }

    /// Old files do not name rewards; a part without a list takes their number from others.
    #[test]
    fn lists_of_rewards_without_names() {
        let head = "@type: CTMC\n@nr_states: 3\n@model\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.drn");
        for (lists, due) in [
            (["", "", "[1, 2]"], Some(2)),
            (["[1]", "", "[2]"], Some(1)),
            (["", "", ""], Some(0)),
            (["[]", "[]", ""], Some(0)),
            (["[1]", "", "[2, 3]"], None),
            (["[1]", "", "[]"], None),
        ] {
            let states = (0..3).map(|s| format!("state {s} {}\naction 0\n0 : 1\n", lists[s]));
            let text = head.to_owned() + &states.collect::<String>();
            std::fs::write(&path, &text).unwrap();
            let whole = parse(text.as_bytes(), &path);
            assert_eq!(whole.as_ref().ok().map(|file| file.rewards.len()), due, "{lists:?}");
            for size in [1, 2, 3, 5] {
                let of = |rank| part(&path, Ranks::simulated(rank, size)).ok().flatten();
                let told: Option<Vec<Told>> = (0..size).map(|rank| of(rank).map(|part| part.told)).collect();
                let all = told.and_then(|told| Told::together(&told, 3));
                assert_eq!(all.map(|all| all.rewards as usize), due, "{size} ranks: {lists:?}");
            }
        }
    }
}
