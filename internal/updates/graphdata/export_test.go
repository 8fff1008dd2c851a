package graphdata

import "errors"

// Relink makes nodes and edges again.
func (d *Data) Relink() error { return errors.Join(d.link()...) }
