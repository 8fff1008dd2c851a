package pages

import (
	"net/url"

	"github.com/runlevel/runlevel/internal/ui/live"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// graphSection returns the graph of a release.
func (s *Site) graphSection(r *live.Release, query url.Values) look.Section { return look.Section{} }
