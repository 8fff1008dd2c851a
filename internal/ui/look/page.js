// Keeps a page current.
