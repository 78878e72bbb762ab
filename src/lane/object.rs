//! Objects that a backend made, held without their types.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// Memory, a launch or a transfer buffer of a backend.
pub(super) trait Object: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> Object for T {}

/// An object of any backend.
#[derive(Debug, Clone)]
pub(super) struct AnyObject(Arc<dyn Object>);

impl AnyObject {
    pub(super) fn new(object: impl Object) -> Self {
        Self(Arc::new(object))
    }

    /// Returns the object if it is of type `T`.
    pub(super) fn get<T: Object>(&self) -> Option<&T> {
        let object: &dyn Any = &*self.0;
        object.downcast_ref()
    }

    /// Returns the object, which must be of type `T`.
    pub(super) fn own<T: Object>(&self) -> &T {
        self.get().expect("a lane is given what lanes of its backend made (asserted by `Lane`)")
    }
}
