package sandbox

import (
	"errors"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster/objectwatch"
)

// newKubelet returns a handler of the API server's requests for the logs of containers, for all nodes. kwok could serve
// files, but would not end the log of a container that ends, and reads the mapping of pods to files only at its start.
func newKubelet(config *rest.Config) (http.Handler, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		serveLog(w, r, pods.Namespace(r.PathValue("namespace")))
	})
	return mux, nil
}

// serveLog answers with the log of one run of a container. With the parameter "follow", it continues until that run has
// ended.
func serveLog(w http.ResponseWriter, r *http.Request, pods dynamic.ResourceInterface) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	log := newLogWriter(w, r.PathValue("container"), options)
	name := r.PathValue("pod")
	_, err = objectwatch.Await(r.Context(), pods, name, func(object *unstructured.Unstructured) bool {
		pod := podOf(object)
		switch {
		case pod == nil && log.run == nil:
			refuse(w, http.StatusNotFound, errors.New("pod does not exist"))
			return true
		case pod == nil:
			return true
		default:
			return log.update(pod)
		}
	})
	if err != nil && log.run == nil && r.Context().Err() == nil {
		refuse(w, http.StatusInternalServerError, err)
	}
}

// refuse answers with an error, which the API server returns to its client.
func refuse(w http.ResponseWriter, code int, err error) {
	w.WriteHeader(code)
	_, _ = io.WriteString(w, err.Error())
}

func podOf(object *unstructured.Unstructured) *corev1.Pod {
	pod := &corev1.Pod{}
	if object == nil || runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod) != nil {
		return nil
	}
	return pod
}
