package machinetest

import (
	"net/http"
	"path"
	"strings"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/sandbox/sandboxtest"
)

// BeforeFirstDelete returns a client configuration that calls a function of the test before the first deletion of a
// machine is sent, with the machine's name.
func BeforeFirstDelete(config *rest.Config, change func(name string)) *rest.Config {
	var first sync.Once
	return sandboxtest.Before(config, func(request *http.Request) error {
		folder, name := path.Split(request.URL.Path)
		if request.Method == http.MethodDelete && strings.HasSuffix(folder, "/machines/") {
			first.Do(func() { change(name) })
		}
		return nil
	})
}
