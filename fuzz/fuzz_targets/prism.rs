//! Models in the PRISM language and properties in CSL.
//!
//! The input is a model, a line `====` and properties of it. Without such a line it is properties
//! of a fixed model, in continuous or in discrete time. Each part is accepted or rejected with an
//! error. An accepted model is explored with little memory, as a whole and in parts.

#![no_main]

use std::collections::HashMap;

use kolmo_model::{Options, PrismModel, Type, Value, properties};

const KNOWN: &str = "ctmc\nconst int N = 2;\nmodule m\n q : [0..N];\n up : bool init true;\n [a] q<N -> 1.5 : (q'=q+1);\n \
    [b] q>0 & up -> q : (q'=q-1);\n [] up -> 0.1 : (up'=!up);\nendmodule\nlabel \"full\" = q=N;\nrewards \"r\" [b] up : 2; q>0 : q; endrewards\n";

const DISCRETE: &str = "dtmc\nconst int N = 2;\nmodule m\n q : [0..N];\n up : bool init true;\n [a] q<N -> 1/3 : (q'=q+1) + 2/3 : true;\n \
    [b] q>0 & up -> q/N : (q'=q-1) + 1-q/N : (up'=false);\nendmodule\nlabel \"full\" = q=N;\nrewards \"r\" [b] up : 2; q>0 : q; endrewards\n";

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let (model, asked) = match text.split_once("\n====\n") {
        Some((model, asked)) => (model, asked),
        None if bytes.first().is_some_and(|byte| byte % 2 == 0) => (DISCRETE, &*text),
        None => (KNOWN, &*text),
    };
    let model = match PrismModel::parse("m.sm", model) {
        Ok(model) => model,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let value = |ty: Type| match ty {
        Type::Int => Value::Int(2),
        Type::Double => Value::Double(0.5),
        Type::Bool => Value::Bool(true),
    };
    let given: Vec<(String, Value)> = model.undefined_constants().map(|(name, ty)| (name.to_owned(), value(ty))).collect();
    let instance = match model.with_constants(&given) {
        Ok(instance) => instance,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    match properties::parse("p.csl", asked, model.names()) {
        Ok(all) => {
            let given: Vec<(String, Value)> =
                all.undefined_constants().map(|(name, ty)| (name.to_owned(), value(ty))).collect();
            match all.with_constants(Some(&instance), &given, &|_| true) {
                Ok(all) => assert!(all.iter().filter_map(|found| found.as_ref().err()).all(|wrong| !wrong.why.is_empty())),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let limit = Options { memory_limit: Some(1 << 20), ..Options::default() };
    match instance.explore(&limit) {
        Ok(space) => {
            for label in model.labels() {
                assert_eq!(space.label(label).map_or(space.states(), |set| set.len()), space.states());
            }
            for name in model.reward_structures() {
                if let (Ok(limit), Ok(values)) = (instance.reward_limit(Some(name), true), space.rewards(Some(name))) {
                    // The values are summed in another order than the limit.
                    assert!(values.iter().all(|value| value.abs() <= limit * (1.0 + 1e-9)), "{values:?} {limit}");
                }
            }
            // In discrete time a state stays for ever, or its probabilities sum to 1.
            let loops: HashMap<u32, f64> = space.self_loops().iter().copied().collect();
            for state in (0..space.states()).filter(|_| model.is_discrete()) {
                let own = loops.get(&(state as u32)).copied();
                let sum: f64 = space.chain().row(state).map(|(_, p)| p).chain(own).sum();
                assert!(sum == 0.0 || (sum - 1.0).abs() < 1e-9, "{sum}");
            }
            // Exploration in growing parts ends in the chain of the whole exploration.
            let mut part = instance.explore_part(None, 2, &Options::default()).expect("a part");
            while !part.edge().is_empty() {
                let known = part.part();
                let least = 2 * known.states() as u64;
                part = instance.explore_part(Some((&known, part.edge())), least, &Options::default()).expect("a part");
            }
            assert_eq!((part.chain(), part.initial()), (space.chain(), space.initial()));
            for (state, row) in (0..space.states()).map(|state| (state, space.chain().row(state))) {
                assert!(row.into_iter().all(|(to, rate)| (to as usize) < space.states() && to as usize != state && rate > 0.0));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
