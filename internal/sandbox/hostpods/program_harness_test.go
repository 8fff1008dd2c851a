package hostpods_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// programEnv makes the test binary the program of the pods in these tests. The program listens at the address of its
// first argument until SIGTERM.
const programEnv = "RUNLEVEL_TEST_PROGRAM"

// A selfReport is the report of the program about itself.
type selfReport struct {
	Args   []string
	Env    map[string]string
	Folder string
	User   string
	Pod    []string // the pod to which the token is bound
	Rights map[string]string
}

func beProgram() int {
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(os.Getenv("SCRATCH") + "/unready"); err == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/self", func(w http.ResponseWriter, request *http.Request) {
		_ = json.NewEncoder(w).Encode(newSelf(request.Context()))
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, request *http.Request) {
		content, err := os.ReadFile(request.URL.Query().Get("path"))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(content)
	})
	server := &http.Server{Addr: os.Args[1], Handler: mux}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("serving\x1b[2J on", os.Args[1])
	select {
	case err := <-failed:
		fmt.Println(err)
		return 1
	case <-ending.Done():
	}
	fmt.Println("asked to end")
	if linger, err := time.ParseDuration(os.Getenv("LINGER")); err == nil {
		lingering, stop := context.WithTimeout(context.Background(), linger)
		defer stop()
		<-lingering.Done()
	}
	fmt.Println("good bye")
	return 0
}

func newSelf(ctx context.Context) selfReport {
	s := selfReport{Args: os.Args, Env: map[string]string{}, Rights: map[string]string{}}
	s.Folder, _ = os.Getwd()
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		s.Env[name] = value
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		s.User = err.Error()
		return s
	}
	client := kubernetes.NewForConfigOrDie(config)
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		s.User = err.Error()
		return s
	}
	s.User, s.Pod = who.Status.UserInfo.Username, who.Status.UserInfo.Extra["authentication.kubernetes.io/pod-name"]
	namespace := os.Getenv("NAMESPACE")
	_, err = client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	s.Rights["list configmaps"] = string(reason(err))
	_, err = client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})
	s.Rights["list secrets"] = string(reason(err))
	return s
}
