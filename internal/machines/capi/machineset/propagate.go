package machineset

import (
	"context"
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/runlevel/runlevel/internal/machines/replicas"
)

// propagate updates the fields of machines that need no new machine.
func (r *Reconciler) propagate(ctx context.Context, s *snapshot) error {
	if s.invalid != "" {
		return nil
	}
	template := templateOf(s.set)
	var behind []*clusterv1.Machine
	for _, m := range s.replicas {
		machine := s.machines[m.Name]
		if m.Owner == replicas.Ours && m.IsSelected && !template.IsCurrent(machine) {
			behind = append(behind, machine)
		}
	}
	_, err := replicas.InParallel(len(behind), requests, func(i int) error {
		return r.machines.Propagate(ctx, template, behind[i])
	})
	if err != nil {
		return fmt.Errorf("bring the template's changes to machines: %w", err)
	}
	return nil
}
