package payload

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The annotations by which a manifest requests settings of the cluster. The first two are OpenShift's.
const (
	injectProxy     = "config.openshift.io/inject-proxy" // names containers of a Deployment or DaemonSet
	injectTLS       = "config.openshift.io/inject-tls"   // "true", on a ConfigMap with configuration of an operator
	injectAPIServer = "runlevel.dev/inject-api-server"   // names containers of a Deployment
)

// An Injection contains the settings of a cluster that manifests may request by annotation. Injected fields become
// a part of the manifest: they are applied and kept in place like all others.
type Injection struct {
	HTTPProxy  string `json:"httpProxy,omitempty"` // setting of the Proxy
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	NoProxy    string `json:"noProxy,omitempty"`
	// settings of the API server's security profile; empty leaves the values of manifests
	MinTLSVersion string   `json:"minTLSVersion,omitempty"`
	CipherSuites  []string `json:"cipherSuites,omitempty"` // IANA names
	APIHost       string   `json:"apiHost,omitempty"`      // address of the API server for pods, if not the Service
	APIPort       string   `json:"apiPort,omitempty"`
}

// inject sets the settings that the manifest's annotations request.
func (i Injection) inject(m *Manifest) error {
	annotation := m.annotation
	if annotation(injectProxy) == "" && annotation(injectAPIServer) == "" && annotation(injectTLS) == "" {
		return nil
	}
	before, err := json.Marshal(m.object.Object)
	if err != nil {
		return err
	}
	if names := annotation(injectProxy); names != "" && i.HTTPProxy+i.HTTPSProxy+i.NoProxy != "" {
		err = setEnv(m, names, injectProxy,
			map[string]string{"HTTP_PROXY": i.HTTPProxy, "HTTPS_PROXY": i.HTTPSProxy, "NO_PROXY": i.NoProxy})
	}
	if names := annotation(injectAPIServer); names != "" && i.APIHost != "" && err == nil {
		err = setEnv(m, names, injectAPIServer,
			map[string]string{"KUBERNETES_SERVICE_HOST": i.APIHost, "KUBERNETES_SERVICE_PORT": i.APIPort})
	}
	if annotation(injectTLS) == "true" && i.MinTLSVersion != "" && err == nil {
		err = i.setTLS(m)
	}
	if err != nil {
		return err
	}
	after, err := json.Marshal(m.object.Object)
	if err == nil && !bytes.Equal(before, after) {
		m.sum = sha256.Sum256(slices.Concat(m.sum[:], after)) // so that another setting is another manifest
	}
	return err
}

// setEnv sets environment variables of the named containers of a pod template.
func setEnv(m *Manifest, names, annotation string, values map[string]string) error {
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, field := range []string{"initContainers", "containers"} {
			containers, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, "spec", "template", "spec", field)
			list, _ := containers.([]any)
			for _, item := range list {
				if container, isMap := item.(map[string]any); isMap && container["name"] == strings.TrimSpace(name) {
					container["env"] = withEnv(container["env"], values)
					found = true
				}
			}
		}
		if !found {
			return fmt.Errorf("metadata.annotations[%s]: the pod template has no container %q", annotation,
				strings.TrimSpace(name))
		}
	}
	return nil
}

// withEnv returns a list of environment variables in which those of values are as given.
func withEnv(env any, values map[string]string) []any {
	list, _ := env.([]any)
	list = slices.DeleteFunc(slices.Clone(list), func(item any) bool {
		variable, _ := item.(map[string]any)
		name, _ := variable["name"].(string)
		_, isSet := values[name]
		return isSet
	})
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, map[string]any{"name": name, "value": values[name]})
	}
	return list
}

// setTLS sets the TLS settings of each configuration of an operator in a ConfigMap. Other texts stay as they are.
func (i Injection) setTLS(m *Manifest) error {
	data, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, "data")
	texts, _ := data.(map[string]any)
	for key, value := range texts {
		text, _ := value.(string)
		var document yaml.Node
		if err := yaml.Unmarshal([]byte(text), &document); err != nil || !isOperatorConfig(&document) {
			continue
		}
		serving := child(document.Content[0], "servingInfo")
		if serving.Kind != yaml.MappingNode {
			*serving = yaml.Node{Kind: yaml.MappingNode}
		}
		if err := child(serving, "minTLSVersion").Encode(i.MinTLSVersion); err != nil {
			return err
		}
		if err := child(serving, "cipherSuites").Encode(i.CipherSuites); err != nil {
			return err
		}
		changed, err := yaml.Marshal(&document)
		if err != nil {
			return fmt.Errorf("data[%s]: %w", key, err)
		}
		texts[key] = string(changed)
	}
	return nil
}

// isOperatorConfig returns whether a document is a configuration that has TLS settings.
func isOperatorConfig(document *yaml.Node) bool {
	var config struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
	}
	if document.Decode(&config) != nil {
		return false
	}
	return config.Kind == "GenericOperatorConfig" && config.APIVersion == "operator.openshift.io/v1alpha1" ||
		config.Kind == "GenericControllerConfig" && config.APIVersion == configv1.GroupVersion.String()
}

// child returns the value of a key of a mapping. It adds a missing value.
func child(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	value := &yaml.Node{}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}
