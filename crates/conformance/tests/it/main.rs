//! The suites, tried on the plain models: a law that the model does not keep is no law.

mod model;
