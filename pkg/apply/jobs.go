package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/pkg/record"
)

// hasEnded notes of a Job that it has run to its end. It may be gone in the next moment:
// so it is not asked again.
func (r *run) hasEnded(w *watched) {
	if isComplete(w.object) {
		r.ended.Store(w.manifest.ID(), record.Job{Object: w.manifest.ID(), UID: w.object.GetUID(), Sum: sumOf(w.manifest)})
	}
}

// rememberJobs tells the record which Jobs have run to their end since it was last told.
// If it can't be written, a later run will know of those that are still there.
func (r *run) rememberJobs() {
	var jobs []record.Job
	r.ended.Range(func(id, job any) bool {
		r.ended.CompareAndDelete(id, job)
		jobs = append(jobs, job.(record.Job))
		return true
	})
	r.options.Journal.Read(func(known *record.Record) {
		jobs = slices.DeleteFunc(jobs, func(job record.Job) bool { return slices.Contains(known.Jobs, job) })
	})
	if len(jobs) == 0 {
		return
	}
	_ = r.options.Journal.Note(r.requests, func(known *record.Record) {
		for _, job := range jobs {
			known.RememberJob(job)
		}
	})
}

// isComplete says whether a Job has run to its end, and did not fail.
func isComplete(job *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, _ := condition.(map[string]any)
		return fields["type"] == "Complete" && fields["status"] == "True"
	})
}
