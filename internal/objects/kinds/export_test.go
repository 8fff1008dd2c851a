package kinds

// CountingKinds are those of which CountsChanges is true.
var CountingKinds = countsChanges
