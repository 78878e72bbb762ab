//! Edge lists, as in SNAP (<https://snap.stanford.edu/data>), plain or gzip.
//!
//! A line holds the numbers of two nodes, separated by blanks. Lines that start with `#` or `%` are
//! comments. Numbers need not be consecutive: the nodes are the numbers that occur. A third column
//! of ones is allowed.

use super::text::{Scanner, error, quote};
use super::*;
use crate::pagerank::Graph;

/// Reads a graph: Matrix Market `.mtx`, SciPy's `.npz`, or else an edge list.
///
/// Entry (i, j) of a matrix is the number of parallel edges from i to j; nodes count from 0. Each
/// line of an edge list is one edge. With `undirected` edges lead in both directions; a file that
/// lists every edge in both directions stays unchanged.
///
/// # Errors
/// Errors of the format's reader. [`Error::Parse`] for a line that is not an edge. [`Error::File`]
/// for a file without edges, a matrix that is not square or has entries that are not whole numbers,
/// and for METIS's adjacency lists.
///
/// ```
/// let folder = tempfile::tempdir().expect("a folder");
/// let file = folder.path().join("links.txt");
/// std::fs::write(&file, "# from to\n7 30\n30\t7\n7 5\n").expect("a file");
///
/// let graph = kolmo::io::read_graph(&file, false)?;
/// assert_eq!((graph.nodes(), graph.links(), graph.node(30)), (3, 3, Some(2)));
/// # Ok::<(), kolmo::Error>(())
/// ```
pub fn read_graph(path: &Path, undirected: bool) -> Result<Graph> {
    let graph = match &system::extension(path)[..] {
        "mtx" => of_matrix(mtx::read_matrix(path)?, path, undirected),
        "npz" => of_matrix(npz::read_matrix(path)?.0, path, undirected),
        _ => {
            let bytes = text::read(path)?;
            match bytes.get(..14).is_some_and(|start| start.eq_ignore_ascii_case(b"%%MatrixMarket")) {
                true => of_matrix(mtx::read_matrix(path)?, path, undirected),
                false => parse(&bytes, path).and_then(|(names, from, to)| {
                    Graph::counted(names.len(), &from, &to, &[], undirected)?.named(names)
                }),
            }
        }
    };
    graph.map_err(in_file(path))
}

/// Builds the graph of an adjacency matrix; entries of 0 are ignored.
fn of_matrix(mut matrix: Coo, path: &Path, undirected: bool) -> Result<Graph> {
    let fail = |reason: String| fail(path, reason);
    if matrix.rows != matrix.columns {
        return fail(format!(
            "{} rows and {} columns: expected a square matrix, with a row and a column for each \
             node",
            matrix.rows, matrix.columns
        ));
    }
    let is_count = |value: f64| value >= 0.0 && value.fract() == 0.0;
    if let Some(k) = matrix.value.par_iter().position_first(|&value| !is_count(value)) {
        return fail(format!(
            "the entry from {} to {} is {}: edge weights are not supported; expected numbers of \
             parallel edges, or a `pattern` matrix",
            matrix.row[k], matrix.column[k], matrix.value[k]
        ));
    }
    if matrix.value.contains(&0.0) {
        let kept: Vec<usize> = (0..matrix.value.len()).filter(|&k| matrix.value[k] != 0.0).collect();
        matrix.row = kept.iter().map(|&k| matrix.row[k]).collect();
        matrix.column = kept.iter().map(|&k| matrix.column[k]).collect();
        matrix.value = kept.iter().map(|&k| matrix.value[k]).collect();
    }
    Graph::counted(matrix.rows, &matrix.row, &matrix.column, &matrix.value, undirected)
}

/// Node numbers, ascending; source and target of each edge, as indices of nodes.
type NamedEdges = (Vec<u64>, Vec<u32>, Vec<u32>);

/// Parses an edge list.
fn parse(bytes: &[u8], path: &Path) -> Result<NamedEdges> {
    if is_metis(bytes) {
        let reason = "adjacency lists of METIS, a line of neighbours for each node, are not \
                      supported; write one edge in each line, the first one below a line `# edges`";
        return fail(path, reason);
    }
    let chunks: Vec<EdgeChunk> = text::chunks(bytes).into_par_iter().map(EdgeChunk::parse).collect();
    let mut above = 0;
    for chunk in &chunks {
        if let Some((line, reason)) = &chunk.trouble {
            return Err(error(path, above + line, reason.clone()));
        }
        above += chunk.lines;
    }
    let ends: Vec<u64> = chunks.into_iter().flat_map(|chunk| chunk.ends).collect();
    let Some(&largest) = ends.iter().max() else {
        let reason = "contains no edge; write one in each line, the numbers of two nodes";
        return fail(path, reason);
    };
    // Uses a table of all numbers if it is not larger than the edges; else the numbers are sorted.
    let (mut names, nodes): (Vec<u64>, Vec<u32>);
    if largest < 2 * ends.len() as u64 + 1024 {
        let mut number = vec![u32::MAX; largest as usize + 1];
        ends.iter().for_each(|&end| number[end as usize] = 0);
        names = (0..=largest).filter(|&name| number[name as usize] == 0).collect();
        names.iter().enumerate().for_each(|(node, &name)| number[name as usize] = node as u32);
        nodes = ends.par_iter().map(|&end| number[end as usize]).collect();
    } else {
        names = ends.clone();
        names.sort_unstable();
        names.dedup();
        let number = |end: &u64| names.binary_search(end).expect("names are those of ends") as u32;
        nodes = ends.par_iter().map(number).collect();
    }
    let (from, to) = nodes.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
    Ok((names, from, to))
}

/// True for METIS's format: one line for each node, with its neighbours.
///
/// The first line is `NODES EDGES [FORMAT [WEIGHTS]]`. The digits of FORMAT announce a size of each
/// node, weights of each node, and a weight after each neighbour. Every edge is listed at both
/// ends. A node without neighbours has an empty line, or its weights alone.
fn is_metis(bytes: &[u8]) -> bool {
    // Empty lines are nodes, but nothing follows the end of the last line.
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.filter(|line| !line.starts_with(b"%"));
    let numbers = |line: &[u8]| text::fields(line).map(text::unsigned).collect::<Option<Vec<u64>>>();
    let Some((n, edges, format, weights)) = lines.next().and_then(numbers).and_then(|head| match head[..] {
        [n, edges] => Some((n, edges, 0, 0)),
        [n, edges, format] => Some((n, edges, format, format / 10 % 10)),
        [n, edges, format, weights] => Some((n, edges, format, weights)),
        _ => None,
    }) else {
        return false;
    };
    if n == 0
        || edges == 0
        || edges > bytes.len() as u64
        || ![0, 1, 10, 11, 100, 101, 110, 111].contains(&format)
    {
        return false;
    }
    let (of_node, each) = ((format / 100 + weights) as usize, 1 + format as usize % 10);
    let mut listed = Vec::new();
    for node in 1..=n {
        let Some(own) = lines.next().and_then(numbers) else { return false };
        let Some(neighbours) = own.get(of_node..) else { return false };
        let (list, rest) = (neighbours.chunks_exact(each), neighbours.len() % each);
        listed.extend(list.map(|entry| (node, entry[0], entry[each - 1])));
        let valid = |&(_, other, _): &(u64, u64, u64)| other != node && (1..=n).contains(&other);
        if rest > 0
            || listed.len() as u64 > 2 * edges
            || !listed.iter().rev().take_while(|entry| entry.0 == node).all(valid)
        {
            return false;
        }
    }
    if listed.len() as u64 != 2 * edges || lines.any(|line| !line.is_empty()) {
        return false;
    }
    let weight = |weight: u64| if each == 2 { weight } else { 0 };
    let mut there: Vec<_> = listed.iter().map(|&(a, b, w)| (a, b, weight(w))).collect();
    let mut back: Vec<_> = listed.iter().map(|&(a, b, w)| (b, a, weight(w))).collect();
    there.sort_unstable();
    back.sort_unstable();
    there == back && there.windows(2).all(|pair| pair[0] != pair[1])
}

/// Edges found in one chunk of lines.
#[derive(Default)]
struct EdgeChunk {
    /// Node numbers of the edges' sources and targets, in turn.
    ends: Vec<u64>,
    lines: u64,
    /// First invalid line, counted from 1, and the reason.
    trouble: Option<(u64, String)>,
}

impl EdgeChunk {
    fn parse(bytes: &[u8]) -> Self {
        let mut chunk = Self { ends: Vec::with_capacity(bytes.len() / 8), ..Self::default() };
        let mut scanner = Scanner::new(bytes);
        while scanner.peek().is_some() {
            chunk.lines += 1;
            let line = scanner.rest();
            scanner.blanks();
            match scanner.peek() {
                None => break,
                Some(b'\n') => scanner.skip(1),
                Some(b'#' | b'%') => scanner.skip_line(),
                Some(_) => match link(&mut scanner) {
                    Some(ends) => chunk.ends.extend(ends),
                    None => {
                        let reason = format!(
                            "invalid edge {}: expected the whole numbers of two nodes between \
                             blanks, without a weight other than 1",
                            quote(text::first_line(line).0)
                        );
                        chunk.trouble = Some((chunk.lines, reason));
                        break;
                    }
                },
            }
        }
        chunk
    }
}

/// Reads two node numbers, an optional weight of 1, and the end of their line.
#[inline]
fn link(scanner: &mut Scanner<'_>) -> Option<[u64; 2]> {
    let from = scanner.unsigned().filter(|_| scanner.is_delimited())?;
    scanner.blanks();
    let to = scanner.unsigned().filter(|_| scanner.is_delimited())?;
    scanner.blanks();
    if scanner.byte(b'\n') || scanner.peek().is_none() {
        return Some([from, to]);
    }
    // A weight, which must be 1.
    let (line, _) = text::first_line(scanner.rest());
    let weight: f64 = std::str::from_utf8(line).ok()?.trim().parse().ok()?;
    scanner.skip_line();
    (weight == 1.0).then_some([from, to])
}

/// Writes an edge list sorted by target, or the graph as a pattern `.mtx` with `matrix`.
pub fn write(writer: &mut dyn Write, graph: &Graph, matrix: bool) -> io::Result<()> {
    let (nodes, links) = (graph.nodes(), graph.links());
    if matrix {
        writeln!(writer, "%%MatrixMarket matrix coordinate pattern general\n{nodes} {nodes} {links}")?;
        return graph.pairs().try_for_each(|(from, to)| writeln!(writer, "{} {}", from + 1, to + 1));
    }
    writeln!(writer, "# Nodes: {nodes} Edges: {links}\n# FromNodeId\tToNodeId")?;
    graph.pairs().try_for_each(|(from, to)| writeln!(writer, "{from}\t{to}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<NamedEdges> {
        parse(text.as_bytes(), Path::new("g.txt"))
    }

    #[test]
    fn lists_are_read_as_snap_writes_them() {
        let (names, from, to) =
            read("# Directed graph\n# Nodes: 3 Edges: 4\n30\t7\r\n7 30\n\n  7\t 5  \n% more\n7 5").unwrap();
        assert_eq!((&names[..], &from[..], &to[..]), (&[5, 7, 30][..], &[2, 1, 1, 1][..], &[1, 2, 0, 0][..]));
        // Sparse numbers.
        let (names, from, to) = read("999999999999999 3\n3 40000000000\n").unwrap();
        assert_eq!(names, [3, 40_000_000_000, 999_999_999_999_999]);
        assert_eq!((from, to), (vec![2, 0], vec![0, 1]));
    }

    #[test]
    fn links_may_have_weights_of_one() {
        let (names, from, to) = read("1 0 1.0\n0 2 1\r\n2\t1\t1e0\n1 2").unwrap();
        assert_eq!((names.len(), from, to), (3, vec![1, 0, 2, 1], vec![0, 2, 1, 2]));
        for text in ["1 0 1.5\n", "1 0 1 1\n", "1 0 x\n", "1 0 nan\n"] {
            assert!(matches!(read(text), Err(Error::Parse { line: 1, .. })), "{text}");
        }
    }

    #[test]
    fn other_formats_are_distinguished_from_lists_of_links() {
        // Edge lists that are similar to METIS's format.
        for links in [
            "3 3\n2 3\n1 3\n1 1\n",
            "3 3\n2 3\n3 1\n1 3\n",
            "1 1\n1 1\n",
            "2 2\n1 2\n2 1\n",
            "2 2\n2 2\n1 1\n",
            "4 3\n2 3\n1 3\n1 2\n",
            "# edges\n3 3\n2 3\n1 3\n1 2\n",
            "2 1 1\n2 1\n1 2\n",
        ] {
            assert!(read(links).is_ok(), "{links}");
        }
        // The first line identifies Matrix Market, regardless of the extension.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("g.edgelist");
        let head = "%%MatrixMarket matrix coordinate";
        std::fs::write(&file, format!("{head} pattern symmetric\n3 3 2\n2 1\n3 2\n")).unwrap();
        assert_eq!(read_graph(&file, false).unwrap().links(), 4);
        // Entries are numbers of parallel edges; 0 is no edge.
        let file = folder.path().join("g.mtx");
        std::fs::write(&file, format!("{head} integer general\n2 2 3\n1 2 100000000000\n2 1 1\n1 1 0\n"))
            .unwrap();
        let graph = read_graph(&file, false).unwrap();
        assert_eq!((graph.links(), graph.nodes()), (100_000_000_001, 2));
    }

    #[test]
    fn an_invalid_link_is_an_error_with_its_line() {
        assert!(matches!(read("# only\n1\x0b2\n"), Err(Error::Parse { line: 2, .. })));
        // Line numbers continue across chunks.
        let long = "1 2\n".repeat(600_000) + "x\n";
        assert!(matches!(read(&long), Err(Error::Parse { line: 600_001, .. })));
    }
}
