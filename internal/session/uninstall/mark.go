package uninstall

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/runlevel/runlevel/internal/cluster/objectmeta"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// markKept marks the kept objects of the release, which are not to be taken for those of a release whose record is
// lost. They keep their labels: a later uninstall finds them. A refused mark is a note, and holds nothing up.
func (r *remover) markKept(ctx context.Context) error {
	now := r.cluster.Now().UTC().Format(time.RFC3339)
	var group errgroup.Group
	group.SetLimit(deletesAtOnce)
	for _, kept := range r.plan.Kept {
		head := kept.head
		if !head.IsOf(r.options.Release) {
			continue
		}
		group.Go(func() error {
			_, err := r.cluster.Patch(ctx, head.Resource, head.ID.Namespace, head.ID.Name, markOf(head, now))
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.report.Notes = append(r.report.Notes, "status may report a lost record, since "+head.ID.String()+
					" is kept and can't be marked: "+printable.Line(err.Error()))
			}
			return nil
		})
	}
	_ = group.Wait()
	return context.Cause(ctx)
}

// markOf returns the JSON patch that marks an object, if it is the same one.
func markOf(head objectmeta.LiveMetadata, now string) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	mark := operation{"add", "/metadata/annotations/" + strings.ReplaceAll(objectmeta.UninstalledAnnotation, "/", "~1"),
		now}
	if len(head.Object().GetAnnotations()) == 0 {
		mark = operation{"add", "/metadata/annotations", map[string]string{objectmeta.UninstalledAnnotation: now}}
	}
	patch, _ := json.Marshal([]operation{{"test", "/metadata/uid", head.UID}, mark})
	return patch
}
