package ready

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are for extensions of the API server: it has to know them, and to reach
// their servers.

// checkDefinition checks names, too: a definition with changed names is served under the
// old names while another definition has the new ones.
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

// checkAPIService checks an APIService with a Service. A local one is always ready.
func checkAPIService(o live, _ Related) Verdict {
	isLocal := len(kinds.CalledServices(&unstructured.Unstructured{Object: o})) == 0
	available := o.condition("Available")
	if isLocal || available.isTrue() {
		return ready()
	}
	return waiting("it is not available: %s", available.why("the API server has not tried it yet"))
}

// checkWebhooks checks the Services of webhooks. Webhooks with a URL are outside of the
// cluster, and are not checked.
func checkWebhooks(o live, related Related) Verdict {
	var silent []string
	for _, service := range kinds.CalledServices(&unstructured.Unstructured{Object: o}) {
		if !related.Serving[service] {
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
