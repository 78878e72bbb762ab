//! Report of `kolmo walk --pagerank`.

use serde_json::{Value, json};

use super::{RunReport, grouped, seconds};
use kolmo::Status;
use kolmo::pagerank::{Graph, Node, Options, Solution};

pub(crate) struct PageRankReport<'a> {
    pub(crate) name: &'a str,
    pub(crate) graph: &'a Graph,
    pub(crate) options: &'a Options,
    /// Value of `--time-limit` in seconds.
    pub(crate) time_limit: Option<f64>,
    /// With `--top`, number of nodes with a proved place in the order.
    pub(crate) certain: Option<usize>,
    pub(crate) solution: &'a Solution,
}

impl PageRankReport<'_> {
    fn is_relative(&self) -> bool {
        self.options.relative > 0.0
    }

    /// Description of the work: products, and elimination if it was used.
    fn work(&self) -> String {
        let products = self.solution.products;
        let more = if self.solution.direct { " and elimination" } else { "" };
        format!("{products} products{more}")
    }

    /// Largest half-width, relative to the estimate if `--relative` applies.
    fn worst(&self) -> f64 {
        let relative = self.is_relative();
        let of = |node: &Node| match (relative, node.estimate) {
            (true, 0.0) => 0.0,
            (true, estimate) => node.half_width / estimate,
            (false, _) => node.half_width,
        };
        self.solution.nodes.iter().map(of).fold(0.0, f64::max)
    }
}

impl RunReport for PageRankReport<'_> {
    fn json(&self) -> Value {
        let (s, options) = (self.solution, self.options);
        let node = |node: &Node| {
            json!({
                "component": self.graph.name(node.node),
                "estimate": node.estimate,
                "half_width": node.half_width,
                "bound": {"truncation": node.truncation, "rounding": node.rounding},
            })
        };
        let names = options.seeds.iter().map(|&seed| self.graph.name(seed));
        json!({
            "command": "walk",
            "model": self.name,
            "status": s.status,
            "damping": options.damping,
            "seeds": names.collect::<Vec<_>>(),
            "relative": options.relative,
            "epsilon": options.epsilon,
            "n": self.graph.nodes(),
            "links": self.graph.links(),
            "dangling": self.graph.dangling(),
            "products": s.products,
            "components": s.nodes.iter().map(node).collect::<Vec<_>>(),
            "certain_places": self.certain,
            "seconds": s.seconds,
        })
    }

    fn status(&self) -> Status {
        self.solution.status
    }

    fn text(&self, verbose: bool) -> String {
        let (s, graph) = (self.solution, self.graph);
        let [nodes, links, dangling] =
            [graph.nodes(), graph.links(), graph.dangling()].map(|k| grouped(k as u64));
        let (name, damping) = (self.name, self.options.damping);
        let mut out = format!("graph    {name}  {nodes} nodes, {links} links, damping {damping}\n");
        if verbose {
            let start = match self.options.seeds.len() {
                0 => "any node".to_owned(),
                1 => "the seed".to_owned(),
                count => format!("any of {count} seeds"),
            };
            out += &format!("restart  at {start}, also from nodes without outgoing edges ({dangling})\n");
            let ((lo, hi), k) = (s.quotients, s.products);
            out += &format!("products {k}; ratios of the last two iterates from {lo:.7} to {hi:.7}\n");
        }
        if let Some(certain) = self.certain {
            out += &format!("order    {certain} of the {} places are certain\n", s.nodes.len());
        }
        let [total, load, solve] = [s.seconds.total, s.seconds.load, s.seconds.solve].map(seconds);
        let (bound, work) = (self.bound(), self.work());
        out + &format!("{bound}\ntime     {total}: load {load}, {work} {solve}\n")
    }

    fn bound(&self) -> String {
        let late = self.time_limit.filter(|&limit| self.solution.seconds.total >= limit);
        let missed = (self.solution.status == Status::NotMet).then(|| match late {
            Some(limit) => {
                format!("the time limit of {} has ended the work; give a larger one", seconds(limit))
            }
            None => "rounding alone exceeds this width; give a larger --relative or --epsilon".to_owned(),
        });
        let (relative, epsilon) = (self.options.relative, self.options.epsilon);
        let wanted = match self.is_relative() {
            true => format!("{relative:.1e}, over the estimate"),
            false => format!("{epsilon:.1e}"),
        };
        let bound = format!("half-width at most {:.1e} of {wanted}, certain", self.worst());
        super::bound_line(&bound, missed.as_deref())
    }
}
