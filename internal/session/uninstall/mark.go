package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// markKept marks the kept objects of the release, which are not to be taken for those of a release whose record is
// lost. They keep their labels: a later uninstall finds them. A refused mark is a note, and holds nothing up.
func (r *remover) markKept(ctx context.Context) error {
	now := r.cluster.Now().UTC().Format(time.RFC3339)
	var owned []objectmeta.LiveMetadata
	for _, kept := range r.plan.Kept {
		if kept.head.IsOf(r.options.Release) {
			owned = append(owned, kept.head)
		}
	}
	forEach(owned, func(_ int, head objectmeta.LiveMetadata) {
		_, err := r.cluster.Patch(ctx, head.Resource, head.ID.Namespace, head.ID.Name, markOf(head, now))
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.report.Notes = append(r.report.Notes, fmt.Sprintf(
				"%s is kept and could not be marked, so status may report a lost record: %s", head.ID,
				printable.Line(err.Error())))
		}
	})
	return context.Cause(ctx)
}

// markOf returns the JSON patch that marks an object, if it is the same one.
func markOf(head objectmeta.LiveMetadata, now string) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	key := strings.ReplaceAll(objectmeta.UninstalledAnnotation, "/", "~1")
	mark := operation{"add", "/metadata/annotations/" + key, now}
	if len(head.Object().GetAnnotations()) == 0 {
		mark = operation{"add", "/metadata/annotations", map[string]string{objectmeta.UninstalledAnnotation: now}}
	}
	patch, _ := json.Marshal([]operation{{"test", "/metadata/uid", head.UID}, mark})
	return patch
}
