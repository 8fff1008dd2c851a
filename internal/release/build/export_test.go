package build

import "github.com/runlevel/runlevel/internal/oci"

// Parts returns the parts of a release before they are written.
func (r *Release) Parts() oci.Store { return r.store }
