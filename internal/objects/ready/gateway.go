package ready

import (
	"cmp"
	"fmt"
	"slices"
)

// These rules are for the Gateway API. Each of its conditions has the generation that it was computed for, since
// several controllers may write the status of one object.

func checkGatewayClass(o liveObject, _ Related) Verdict {
	return o.checkEach(o.list("status", "conditions"), "", "Accepted")
}

func checkGateway(o liveObject, _ Related) Verdict {
	return o.checkEach(o.list("status", "conditions"), "", "Accepted", "Programmed")
}

// checkRoute checks a route for each of its parents: a Gateway, or one of its listeners. A route without parents is
// ready.
func checkRoute(o liveObject, _ Related) Verdict {
	for _, ref := range o.list("spec", "parentRefs") {
		parent := o.parentName(ref)
		statuses := slices.DeleteFunc(o.list("status", "parents"), func(status liveObject) bool {
			reported, _ := status["parentRef"].(map[string]any)
			return o.parentName(reported) != parent
		})
		if len(statuses) == 0 {
			return waiting("its parent %s has not accepted it yet", parent)
		}
		for _, status := range statuses { // one of each controller
			conditions := status.list("conditions")
			if verdict := o.checkEach(conditions, " of "+parent, "Accepted", "ResolvedRefs"); verdict.State != Ready {
				return verdict
			}
		}
	}
	return ready()
}

// parentName returns the parent that a reference of a route names: "Gateway shop/public, listener https".
func (o liveObject) parentName(ref liveObject) string {
	namespace := cmp.Or(ref.text("namespace"), o.text("metadata", "namespace"))
	name := fmt.Sprintf("%s %s/%s", cmp.Or(ref.text("kind"), "Gateway"), namespace, ref.text("name"))
	if section := ref.text("sectionName"); section != "" {
		name += ", listener " + section
	}
	if port := ref.number(0, "port"); port != 0 {
		name += fmt.Sprintf(", port %d", port)
	}
	return name
}

// checkEach checks conditions that have generations: all wanted ones must be true for the generation of the object. The
// subject follows the type of a condition in messages.
func (o liveObject) checkEach(conditions []liveObject, subject string, wanted ...string) Verdict {
	generation := o.number(0, "metadata", "generation")
	for _, kind := range wanted {
		found := slices.IndexFunc(conditions, func(c liveObject) bool { return c.text("type") == kind })
		if found < 0 {
			return waiting("its condition %s%s is not reported yet", kind, subject)
		}
		reported := conditions[found]
		c := condition{reported.text("status"), reported.text("reason"), reported.text("message")}
		switch {
		case reported.number(generation, "observedGeneration") < generation:
			return waiting(notSeen)
		case !c.isTrue():
			return waiting("its condition %s%s is %s: %s", kind, subject, cmp.Or(c.status, "missing"),
				c.reasonAndMessage("the controller reports no reason"))
		}
	}
	return ready()
}
