package ready

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about what extends the API server: it has to know it, and to reach who
// answers for it.

// checkDefinition looks at names too: a definition that changes them is served under the
// old ones for as long as another has the new ones.
func checkDefinition(o live, _ Related) Verdict {
	names, established := o.condition("NamesAccepted"), o.condition("Established")
	switch {
	case names.isFalse():
		return waiting("its names are not accepted: %s", names.why("another definition has them"))
	case !established.isTrue():
		return waiting("it is not established: %s", established.why("the API server has not seen it yet"))
	default:
		return ready()
	}
}

func checkNamespace(o live, _ Related) Verdict {
	switch phase := o.text("status", "phase"); phase {
	case "Active":
		return ready()
	case "":
		return waiting("it has no phase yet")
	default:
		return waiting("it is in phase %s", phase)
	}
}

// checkAPIService takes one that the API server answers itself as it is.
func checkAPIService(o live, _ Related) Verdict {
	isLocal := len(kinds.CalledServices(&unstructured.Unstructured{Object: o})) == 0
	available := o.condition("Available")
	if isLocal || available.isTrue() {
		return ready()
	}
	return waiting("it is not available: %s", available.why("the API server has not tried it yet"))
}

// checkWebhooks asks for Services only: what else the API server calls is outside the
// cluster, and is not known there.
func checkWebhooks(o live, around Related) Verdict {
	var silent []string
	for _, service := range kinds.CalledServices(&unstructured.Unstructured{Object: o}) {
		if !around.Serving[service] {
			silent = append(silent, service.String())
		}
	}
	switch len(silent) {
	case 0:
		return ready()
	case 1:
		return waiting("nothing serves Service %s yet", silent[0])
	default:
		return waiting("nothing serves the Services %s yet", strings.Join(silent, ", "))
	}
}

// callsServices says whether objects of a kind wait for nothing but Services.
func callsServices(kind schema.GroupKind) bool {
	return kind == kinds.APIService || kind.Group == "admissionregistration.k8s.io" && strings.HasSuffix(kind.Kind, "WebhookConfiguration")
}
