//! Joins near-duplicate pairs into clusters whose root is their smallest member.
//!
//! The smallest id as root makes the clusters, and so the rows that are kept, independent of the order in
//! which pairs arrive and of the number of threads that found them.

/// Disjoint sets of the ids 0 to `len - 1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    /// `len` sets of one id each.
    pub fn new(len: u32) -> Self {
        Self { parents: (0..len).collect() }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Whether there is no id at all.
    pub fn is_empty(&self) -> bool {
        self.parents.is_empty()
    }

    /// Smallest id of the set that `id` belongs to; an id outside the range is its own set.
    pub fn find(&mut self, id: u32) -> u32 {
        let mut at = id;
        while let Some(parent) = self.parents.get(at as usize).copied() {
            if parent == at {
                break;
            }
            // path halving: every node on the way points to its grandparent afterwards
            let grandparent = self.parents[parent as usize];
            self.parents[at as usize] = grandparent;
            at = grandparent;
        }
        at
    }

    /// Joins the sets of two ids; whether they were apart before. Ids outside the range are left alone.
    pub fn union(&mut self, first: u32, second: u32) -> bool {
        let (first, second) = (self.find(first), self.find(second));
        let (root, child) = (first.min(second), first.max(second));
        if root == child || child as usize >= self.parents.len() {
            return false;
        }
        self.parents[child as usize] = root;
        true
    }

    /// Root of every id, by id.
    pub fn roots(&mut self) -> Vec<u32> {
        let len = u32::try_from(self.parents.len()).unwrap_or(u32::MAX);
        (0..len).map(|id| self.find(id)).collect()
    }

    /// Sizes of all sets, each at the index of its root; 0 for ids that are no root.
    pub fn sizes(&mut self) -> Vec<u32> {
        let mut sizes = vec![0; self.parents.len()];
        for root in self.roots() {
            sizes[root as usize] += 1;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_root_is_the_smallest_member() {
        let mut sets = UnionFind::new(6);
        assert!(sets.union(5, 3));
        assert!(sets.union(3, 1));
        assert!(!sets.union(1, 5));
        assert_eq!(sets.roots(), [0, 1, 2, 1, 4, 1]);
        assert_eq!(sets.sizes(), [1, 3, 1, 0, 1, 0]);
        assert!(!sets.union(2, 9));
    }

    proptest! {
        #[test]
        fn clusters_do_not_depend_on_the_order_of_pairs(pairs in prop::collection::vec((0_u32..30, 0_u32..30), 0..60)) {
            let (mut forward, mut backward) = (UnionFind::new(30), UnionFind::new(30));
            for (first, second) in &pairs {
                forward.union(*first, *second);
            }
            for (first, second) in pairs.iter().rev() {
                backward.union(*second, *first);
            }
            prop_assert_eq!(forward.roots(), backward.roots());
            prop_assert_eq!(forward.sizes().iter().sum::<u32>(), 30);
            for (id, root) in forward.roots().into_iter().enumerate() {
                prop_assert!(root as usize <= id);
            }
        }
    }
}
