//! `kolmo.Graph` and `kolmo.pagerank`: PageRank of a graph's nodes, on the CPU.

use crate::prelude::*;
use kolmo::pagerank::{self, Node, Options, page_rank};
use kolmo::{io, models};

use crate::walk::limit;

/// Directed graph for PageRank, with its edges in memory of the library.
#[pyclass(frozen, name = "Graph", module = "kolmo._kolmo")]
pub(crate) struct PyGraph {
    graph: pagerank::Graph,
    /// Arguments of `read_graph` that make a built-in graph; a pickle stores them.
    built_in: Option<(String, bool, u64)>,
}

/// A PageRank request.
#[derive(FromPyObject)]
pub(crate) struct PageRankRequest<'py> {
    nodes: Option<Vec<u64>>,
    damping: f64,
    seeds: Vec<u64>,
    relative: f64,
    epsilon: f64,
    time_limit: Option<f64>,
    progress: Option<Bound<'py, PyAny>>,
}

/// Makes a graph of `nodes` nodes from lists of sources and targets, with `names` if given.
///
/// Each pair has the number of edges in `counts`, or one edge if `counts` is empty.
#[pyfunction]
#[pyo3(signature = (nodes, from_, to, counts, undirected, names = None))]
pub(crate) fn graph_of_links(
    py: Python<'_>,
    nodes: usize,
    from_: PyReadonlyArray1<'_, u32>,
    to: PyReadonlyArray1<'_, u32>,
    counts: PyReadonlyArray1<'_, f64>,
    undirected: bool,
    names: Option<PyReadonlyArray1<'_, u64>>,
) -> PyResult<PyGraph> {
    let (from, to, counts) = (from_.as_slice()?, to.as_slice()?, counts.as_slice()?);
    let names = names.as_ref().map(|names| names.as_slice()).transpose()?;
    let graph = watched(py, None, &Stop::default(), |_| {
        let graph = pagerank::Graph::counted(nodes, from, to, counts, undirected)?;
        match names {
            Some(names) => graph.named(names.to_vec()),
            None => Ok(graph),
        }
    })?;
    Ok(PyGraph { graph, built_in: None })
}

/// Reads the graph of a file, or makes a built-in graph.
#[pyfunction]
pub(crate) fn read_graph(py: Python<'_>, spec: &str, undirected: bool, seed: u64) -> PyResult<PyGraph> {
    let read = |_: &mut dyn Progress| match models::links(spec, seed) {
        Some(made) => {
            let made = made?;
            let graph = pagerank::Graph::counted(made.nodes, &made.from, &made.to, &[], undirected)?;
            Ok(PyGraph { graph, built_in: Some((spec.to_owned(), undirected, seed)) })
        }
        None => Ok(PyGraph { graph: io::read_graph(Path::new(spec), undirected)?, built_in: None }),
    };
    watched(py, None, &Stop::default(), read)
}

#[pymethods]
impl PyGraph {
    /// Number of nodes.
    #[getter]
    fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// Number of edges.
    #[getter]
    fn links(&self) -> usize {
        self.graph.links()
    }

    /// Names of all nodes, ascending.
    fn names<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        PyArray1::from_iter(py, (0..self.graph.nodes() as u32).map(|node| self.graph.name(node)))
    }

    /// True if nodes, names and edges are equal.
    fn equals(&self, py: Python<'_>, other: &Self) -> bool {
        let (ours, theirs) = (&self.graph, &other.graph);
        py.detach(|| {
            (ours.nodes(), ours.links()) == (theirs.nodes(), theirs.links())
                && (0..ours.nodes() as u32).all(|node| ours.name(node) == theirs.name(node))
                && ours.counted_pairs().eq(theirs.counted_pairs())
        })
    }

    /// Pickles a built-in by its specification, and any other graph by its edges.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let module = py.import("kolmo._kolmo")?;
        if let Some(made) = &self.built_in {
            return Ok((module.getattr("read_graph")?, made.into_pyobject(py)?));
        }
        let graph = &self.graph;
        let pairs = graph.counted_pairs().map(|(from, to, count)| (from, to, count as f64));
        let (from, to, counts): (Vec<_>, Vec<_>, Vec<_>) = pairs.collect();
        let (from, to) = (PyArray1::from_vec(py, from), PyArray1::from_vec(py, to));
        let counts = PyArray1::from_vec(py, counts);
        let arguments = (self.nodes(), from, to, counts, false, self.names(py));
        Ok((module.getattr("graph_of_links")?, arguments.into_pyobject(py)?))
    }

    /// Returns the object itself, which is immutable.
    fn __deepcopy__<'py>(own: Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        own
    }

    /// Computes the PageRank of the nodes with these names, or of all nodes.
    fn page_rank<'py>(&self, py: Python<'py>, reader: PageRankRequest<'py>) -> PyResult<Bound<'py, PyDict>> {
        let PageRankRequest { nodes, damping, seeds, relative, epsilon, time_limit, progress } = reader;
        let graph = &self.graph;
        let solution = watched(py, progress.as_ref(), &Stop::default(), |told| {
            let named = |names: &[u64]| names.iter().map(|&name| self.node(name)).collect::<Result<Vec<_>>>();
            let targets = match &nodes {
                Some(names) => named(names)?,
                None => (0..graph.nodes() as u32).collect(),
            };
            let (seeds, time_limit) = (named(&seeds)?, time_limit.map(limit).transpose()?);
            let options = Options::default()
                .damping(damping)
                .seeds(seeds)
                .relative(relative)
                .epsilon(epsilon)
                .time_limit(time_limit);
            page_rank(graph, &targets, &options, told)
        })?;
        let each = |fact: fn(&Node) -> f64| PyArray1::from_iter(py, solution.nodes.iter().map(fact));
        let names = solution.nodes.iter().map(|node| graph.name(node.node));
        let answer = PyDict::new(py);
        answer.set_item("met", solution.status == Status::Met)?;
        answer.set_item("nodes", PyArray1::from_iter(py, names))?;
        answer.set_item("estimate", each(|node| node.estimate))?;
        answer.set_item("half_width", each(|node| node.half_width))?;
        answer.set_item("truncation", each(|node| node.truncation))?;
        answer.set_item("rounding", each(|node| node.rounding))?;
        answer.set_item("products", solution.products)?;
        answer.set_item("seconds", solution.seconds.solve)?;
        Ok(answer)
    }
}

impl PyGraph {
    fn node(&self, name: u64) -> Result<u32> {
        self.graph.node(name).ok_or_else(|| {
            let (nodes, last) = (self.graph.nodes(), self.graph.name(self.graph.nodes() as u32 - 1));
            Error::invalid(format!("node {name} is not in the graph of {nodes} nodes; the last is {last}"))
        })
    }
}
