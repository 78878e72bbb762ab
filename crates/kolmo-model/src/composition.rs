//! Synchronisation of the modules' actions, as `system … endsystem` defines it.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostics::Diagnostic;
use crate::syntax::{Composition, Module, Name};

/// Commands of modules that happen together, as one transition with the action `seen`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Synchronisation {
    /// Visible action. `None` if it is hidden or the commands have no action.
    pub(crate) seen: Option<String>,
    /// Synchronised modules by index, each with its own action.
    pub(crate) parts: Vec<(usize, Option<String>)>,
}

/// Maximum number of synchronisations in a composition.
const LIMIT: usize = 1_000_000;

/// Returns the synchronisations of a composition, or of all modules in parallel without one.
pub(crate) fn combinations(
    system: Option<&Composition>,
    modules: &[Module],
) -> Result<Vec<Synchronisation>, Diagnostic> {
    let Some(system) = system else {
        let all = (0..modules.len()).map(|m| of_module(m, modules)).collect();
        return parallel(all).ok_or_else(|| too_many(&modules[0].name));
    };
    let mut used = BTreeSet::new();
    let all = of_system(system, modules, &mut used)?;
    match (0..modules.len()).find(|m| !used.contains(m)) {
        None => Ok(all),
        Some(missing) => Err(Diagnostic::new(
            modules[missing].name.span,
            format!("the module '{}' is not part of the system", modules[missing].name.text),
            "name each module once in system … endsystem",
        )),
    }
}

fn too_many(name: &Name) -> Diagnostic {
    let message = format!("the composition has more than {LIMIT} combinations of actions");
    Diagnostic::new(name.span, message, "use fewer modules that share actions")
}

fn of_module(m: usize, modules: &[Module]) -> Vec<Synchronisation> {
    let actions: BTreeSet<Option<String>> =
        modules[m].commands.iter().map(|c| c.action.as_ref().map(|name| name.text.clone())).collect();
    actions.into_iter().map(|a| Synchronisation { seen: a.clone(), parts: vec![(m, a)] }).collect()
}

fn alphabet(all: &[Synchronisation]) -> BTreeSet<String> {
    all.iter().filter_map(|t| t.seen.clone()).collect()
}

/// Composes in parallel: an action synchronises all components with it. `None` above [`LIMIT`].
fn parallel(all: Vec<Vec<Synchronisation>>) -> Option<Vec<Synchronisation>> {
    let alphabets: Vec<BTreeSet<String>> = all.iter().map(|part| alphabet(part)).collect();
    let mut results = Vec::new();
    let mut by_action: BTreeMap<String, Vec<Vec<Synchronisation>>> = BTreeMap::new();
    for (part, alphabet) in all.into_iter().zip(alphabets) {
        let mut own: BTreeMap<String, Vec<Synchronisation>> =
            alphabet.into_iter().map(|a| (a, Vec::new())).collect();
        for one in part {
            match one.seen.as_ref().and_then(|a| own.get_mut(a)) {
                Some(list) => list.push(one),
                None => results.push(one),
            }
        }
        own.into_iter().for_each(|(action, list)| by_action.entry(action).or_default().push(list));
    }
    for lists in by_action.into_values() {
        let product = lists.into_iter().map(Some).reduce(|a, b| joined(a?, &b?))??;
        results.extend(product);
    }
    (results.len() <= LIMIT).then_some(results)
}

/// Combines each synchronisation of `left` with each of `right`, all of one action.
fn joined(mut left: Vec<Synchronisation>, right: &[Synchronisation]) -> Option<Vec<Synchronisation>> {
    // Many modules may share an action: each extends the list in place.
    if let [one] = right {
        left.iter_mut().for_each(|l| l.parts.extend_from_slice(&one.parts));
        return Some(left);
    }
    if left.len().checked_mul(right.len())? > LIMIT {
        return None;
    }
    let both = |l: &Synchronisation, r: &Synchronisation| [&l.parts[..], &r.parts].concat();
    let with = |l| right.iter().map(move |r| Synchronisation { seen: r.seen.clone(), parts: both(l, r) });
    Some(left.iter().flat_map(with).collect())
}

fn of_system(
    system: &Composition,
    modules: &[Module],
    used: &mut BTreeSet<usize>,
) -> Result<Vec<Synchronisation>, Diagnostic> {
    match system {
        Composition::Module(name) => {
            let Some(m) = modules.iter().position(|module| module.name.text == name.text) else {
                let known = modules.iter().map(|m| &*m.name.text);
                let help = crate::types::similar(&name.text, known, "name modules of this model");
                return Err(Diagnostic::new(name.span, format!("there is no module '{}'", name.text), help));
            };
            if !used.insert(m) {
                let message = format!("the module '{}' is part of the system twice", name.text);
                return Err(Diagnostic::new(name.span, message, "make a copy of it by renaming"));
            }
            Ok(of_module(m, modules))
        }
        Composition::Parallel(all) => {
            let all = all.iter().map(|part| of_system(part, modules, used)).collect::<Result<_, _>>()?;
            parallel(all).ok_or_else(|| too_many(&modules[0].name))
        }
        Composition::Interleaved(all) => {
            let all = all.iter().map(|part| of_system(part, modules, used)).collect::<Result<Vec<_>, _>>();
            all.map(|all| all.concat())
        }
        Composition::On(left, actions, right) => {
            let (left, right) = (of_system(left, modules, used)?, of_system(right, modules, used)?);
            let on: BTreeSet<&str> = actions.iter().map(|a| &*a.text).collect();
            let split = |all: Vec<Synchronisation>| -> (Vec<Synchronisation>, Vec<Synchronisation>) {
                all.into_iter().partition(|t| t.seen.as_deref().is_some_and(|a| on.contains(a)))
            };
            let ((left_on, mut results), (right_on, right_off)) = (split(left), split(right));
            results.extend(right_off);
            for action in on {
                let of = |all: &[Synchronisation]| -> Vec<Synchronisation> {
                    all.iter().filter(|t| t.seen.as_deref() == Some(action)).cloned().collect()
                };
                let product = joined(of(&left_on), &of(&right_on));
                results.extend(product.ok_or_else(|| too_many(&modules[0].name))?);
            }
            Ok(results)
        }
        Composition::Hide(inner, actions) => {
            let mut all = of_system(inner, modules, used)?;
            let hidden = |action: &mut String| actions.iter().any(|hidden| hidden.text == *action);
            all.iter_mut().for_each(|one| drop(one.seen.take_if(hidden)));
            Ok(all)
        }
        Composition::Rename(inner, pairs) => {
            let mut all = of_system(inner, modules, used)?;
            for action in all.iter_mut().filter_map(|one| one.seen.as_mut()) {
                if let Some((_, new)) = pairs.iter().find(|(old, _)| old.text == *action) {
                    action.clone_from(&new.text);
                }
            }
            Ok(all)
        }
    }
}
