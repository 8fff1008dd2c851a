package e2e_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// broken is a Deployment: POD is replaced by the fields of the pod.
const broken = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: POD
`

// TestWhyNamesBrokenObjects breaks Deployments in ways that a kubelet finds: "runlevel why" names each.
func TestWhyNamesBrokenObjects(t *testing.T) {
	s := newStage(t)
	namespace := shared.Namespace(t)
	for name, test := range map[string]struct {
		pod  string
		want []string
	}{
		"image": {`{containers: [{name: app, image: "registry.example/missing:1"}]}`,
			[]string{"can't pull image", "registry.example/missing:1"}},
		"never": {`{containers: [{name: app, image: "registry.example/missing:2", imagePullPolicy: Never}]}`,
			[]string{"registry.example/missing:2"}},
		"exit":   {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, exit, "7", sorry]}]}`, []string{"exit code 7", "exit 7 sorry"}},
		"memory": {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, eat], resources: {limits: {memory: 64Mi}}}]}`, []string{"OOMKilled"}},
		"command": {`{containers: [{name: app, image: "registry.example/app:1", command: [/missing]}]}`,
			[]string{"/missing"}},
		"readiness":   {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], readinessProbe: {httpGet: {path: /, port: 9}, periodSeconds: 1}}]}`, []string{"is not ready: its probe fails"}},
		"liveness":    {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], livenessProbe: {httpGet: {path: /, port: 9}, periodSeconds: 1, failureThreshold: 1}, readinessProbe: {httpGet: {path: /, port: 9}, periodSeconds: 1}}]}`, []string{"iveness"}},
		"environment": {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], envFrom: [{configMapRef: {name: settings}}]}]}`, []string{"settings"}},
		"volume":      {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], volumeMounts: [{name: tls, mountPath: /tls}]}], volumes: [{name: tls, secret: {secretName: certificate}}]}`, []string{"certificate", "not found"}},
		"claim":       {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve]}], volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}`, []string{"data", "not found"}},
		"cpu":         {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], resources: {requests: {cpu: "900"}}}]}`, []string{"Insufficient cpu"}},
		"selector":    {`{nodeSelector: {disk: ssd}, containers: [{name: app, image: "registry.example/app:1", command: [/program, serve]}]}`, []string{"node(s) didn't match"}},
		"init":        {`{initContainers: [{name: prepare, image: "registry.example/app:1", command: [/program, exit, "4"]}], containers: [{name: app, image: "registry.example/app:1", command: [/program, serve]}]}`, []string{"prepare", "exit code 4"}},
		"root":        {`{containers: [{name: app, image: "registry.example/app:1", command: [/program, serve], securityContext: {runAsNonRoot: true}}]}`, []string{"runAsNonRoot"}},
	} {
		object := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal([]byte(
			strings.NewReplacer("NAMESPACE", namespace, "NAME", name, "POD", test.pod).Replace(broken),
		), &object.Object))
		s.must(s.client.Create(t.Context(), object, client.FieldOwner("kubectl")))
		t.Run(name, func(t *testing.T) {
			newStage(t).untilPrints(test.want, "why", "deployment/"+name, "-n", namespace)
		})
	}
}
