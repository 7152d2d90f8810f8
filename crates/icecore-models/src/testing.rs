//! A model server that does what a test tells it, over real HTTP on a free port.
