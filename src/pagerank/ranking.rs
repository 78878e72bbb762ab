//! Ranking of nodes: the largest, and how many places are certain.

use super::solution::{Node, Solution};

impl Solution {
    /// Keeps the `top` largest nodes in descending order, and returns the number of certain places.
    ///
    /// A place is certain if its interval and those before it lie above the intervals of all later
    /// nodes.
    pub fn rank(&mut self, top: usize) -> usize {
        self.nodes.sort_by(|a, b| b.estimate.total_cmp(&a.estimate).then(a.node.cmp(&b.node)));
        let certain = certain_places(&self.nodes, top);
        self.nodes.truncate(top);
        certain
    }
}

/// Number of leading places that are certain, among the first `top` of nodes in descending order.
fn certain_places(nodes: &[Node], top: usize) -> usize {
    // Largest upper bound of all nodes after each place.
    let mut above = vec![f64::NEG_INFINITY; nodes.len() + 1];
    for (k, node) in nodes.iter().enumerate().rev() {
        above[k] = above[k + 1].max(node.estimate + node.half_width);
    }
    let places = nodes.iter().take(top).zip(&above[1..]);
    places.take_while(|(node, above)| node.estimate - node.half_width >= **above).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_certain_if_intervals_are_disjoint() {
        let node = |estimate, half_width| Node::new(0, estimate, half_width, 0.0);
        let nodes = [node(9.0, 1.0), node(7.0, 1.0), node(4.0, 0.5), node(3.0, 1.0), node(1.0, 0.1)];
        assert_eq!([0, 1, 2, 3, 9].map(|top| certain_places(&nodes, top)), [0, 1, 2, 2, 2]);
        // The interval of the last node alone reaches up to the first.
        let nodes = [node(9.0, 1.0), node(5.0, 0.1), node(4.0, 5.0)];
        assert_eq!(certain_places(&nodes, 3), 0);
        assert_eq!(certain_places(&nodes[..2], 2), 2);
    }
}
