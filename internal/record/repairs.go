package record

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// Repairs are the repairs since the newest update began.
type Repairs struct {
	Count  int      `json:"count"`  // of all repairs
	Latest []Repair `json:"latest"` // the last repaired objects, the newest first
}

// A Repair is a repaired object.
type Repair struct {
	kinds.ID `json:",inline"`
	Count    int         `json:"count"` // how often, as long as it is among the latest
	Time     metav1.Time `json:"time"`  // of the last repair
	Message  string      `json:"message"`
}

// maxRepairs bounds how many repaired objects are kept.
const maxRepairs = 10

// AddRepair records the repair of an object.
func (r *Record) AddRepair(repair Repair) {
	if r.Repairs == nil {
		r.Repairs = &Repairs{}
	}
	r.Repairs.Count++
	latest := slices.Clone(r.Repairs.Latest)
	if i := slices.IndexFunc(latest, func(known Repair) bool { return known.ID == repair.ID }); i >= 0 {
		repair.Count = latest[i].Count
		latest = slices.Delete(latest, i, i+1)
	}
	repair.Count++
	latest = slices.Insert(latest, 0, repair)
	r.Repairs.Latest = latest[:min(maxRepairs, len(latest))]
}
