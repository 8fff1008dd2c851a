package sandbox

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// A kubelet answers the API server's requests for the logs of containers, for all nodes. kwok could show files,
// but would not end the log of a container that ends, and reads which pod has which file only at its start.
type kubelet struct {
	listener net.Listener
	server   *http.Server
}

// newKubelet listens on a port of its own. Connections wait until serve is called.
func newKubelet() (*kubelet, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &kubelet{listener: listener, server: &http.Server{ErrorLog: log.New(io.Discard, "", 0)}}, nil
}

func (k *kubelet) port() int { return k.listener.Addr().(*net.TCPAddr).Port }

// serve answers requests from those who have a certificate of the sandbox's authority, with the pods that config
// leads to.
func (k *kubelet) serve(h *stateFolder, ca []byte, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	certificate, err := tls.LoadX509KeyPair(h.path("pki", "kubelet.crt"), h.path("pki", "kubelet.key"))
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca)
	k.server.TLSConfig = &tls.Config{
		Certificates: []tls.Certificate{certificate}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		serveLog(w, r, pods.Namespace(r.PathValue("namespace")))
	})
	k.server.Handler = mux
	go func() { _ = k.server.ServeTLS(k.listener, "", "") }()
	return nil
}

// close ends the requests that are being answered, too.
func (k *kubelet) close() {
	_ = k.server.Close()
	_ = k.listener.Close()
}

// serveLog answers with the log of one run of a container. With the parameter "follow", it goes on until that run
// has ended.
func serveLog(w http.ResponseWriter, r *http.Request, pods dynamic.ResourceInterface) {
	options, err := parseLogOptions(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	answer := &logAnswer{to: w, container: r.PathValue("container"), logOptions: options}
	name := r.PathValue("pod")
	_, err = Await(r.Context(), pods, name, func(object *unstructured.Unstructured) bool {
		pod := podOf(object)
		switch {
		case pod == nil && answer.run == nil:
			refuse(w, http.StatusNotFound, errors.New("pod does not exist"))
			return true
		case pod == nil:
			return true
		default:
			return answer.proceed(pod)
		}
	})
	if err != nil && answer.run == nil && r.Context().Err() == nil {
		refuse(w, http.StatusInternalServerError, err)
	}
}

// refuse answers with an error, which the API server passes on.
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
