package pages

import (
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/runlevel/runlevel/internal/review/referrers"
	"github.com/runlevel/runlevel/internal/ui/look"
)

// maxReferences limits the references of an object in each direction.
const maxReferences = 50

// presences are the origins of referenced objects in words.
var presences = map[referrers.Presence]string{
	referrers.InRelease: "in the release",
	referrers.Made:      "a controller creates it",
	referrers.BuiltIn:   "every cluster has it",
	referrers.Deleted:   "the release deletes it",
	referrers.Missing:   "not in the release",
}

// references returns the objects that the object refers to, and those that refer to it, by the files of the release.
func (v *objectView) references() g.Group {
	if v.release == nil || v.release.Payload == nil {
		return nil
	}
	refersTo, referredBy := g.Group{}, g.Group{}
	for _, referral := range referrers.Of(v.release.Payload).References {
		if referral.By == v.id {
			refersTo = append(refersTo, h.Li(v.objectLink(v.release, referral.To),
				look.Text(" ("+referral.Field+"), "+presences[referral.Presence])))
		}
		if referral.To == v.id {
			referredBy = append(referredBy,
				h.Li(v.objectLink(v.release, referral.By), look.Text(" ("+referral.Field+")")))
		}
	}
	return append(referenceList("Refers to", refersTo), referenceList("Referred to by", referredBy)...)
}

// referenceList returns the first references in a direction; nil if there are none.
func referenceList(title string, items g.Group) g.Group {
	if len(items) == 0 {
		return nil
	}
	return g.Group{h.H3(g.Text(title)), h.Ul(items[:min(maxReferences, len(items))]),
		look.More(len(items)-maxReferences, "reference")}
}
