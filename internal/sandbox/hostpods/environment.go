package hostpods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// variables are the environment of a process.
type variables map[string]string

// list returns the variables in the format of exec.Cmd.Env.
func (v variables) list() []string {
	list := []string{} // nil would be this process's environment
	for _, name := range slices.Sorted(maps.Keys(v)) {
		list = append(list, name+"="+v[name])
	}
	return list
}

// accountMount is the folder of a container that has its service account's token.
const accountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// environment returns the variables of the pod, and those for the home folder, temporary files and the kubeconfig.
func (c *container) environment(ctx context.Context) (variables, error) {
	v := variables{"HOME": c.folder}
	if temp := c.hostPath("/tmp"); temp != "/tmp" {
		v["TMPDIR"] = temp
	}
	if account := c.hostPath(accountMount); account != accountMount {
		v["KUBECONFIG"] = filepath.Join(c.folder, "kubeconfig")
		if err := c.writeKubeconfig(v["KUBECONFIG"], filepath.Join(account, "token")); err != nil {
			return nil, err
		}
	}
	for _, source := range c.spec.EnvFrom {
		if err := c.addAll(ctx, v, source); err != nil {
			return nil, err
		}
	}
	for _, envVar := range c.spec.Env {
		value, err := c.value(envVar, v)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", envVar.Name, err)
		}
		v[envVar.Name] = c.hostPath(value)
	}
	return v, nil
}

// addAll adds a variable for each key of a ConfigMap or a Secret.
func (c *container) addAll(ctx context.Context, v variables, source corev1.EnvFromSource) error {
	var data map[string][]byte
	var err error
	switch {
	case source.ConfigMapRef != nil:
		data, err = c.pod.configMap(ctx, source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
	case source.SecretRef != nil:
		data, err = c.pod.secret(ctx, source.SecretRef.Name, source.SecretRef.Optional)
	}
	for name, value := range data {
		v[source.Prefix+name] = c.hostPath(string(value))
	}
	return err
}

// value returns the value of a variable. Values may refer to earlier variables.
func (c *container) value(envVar corev1.EnvVar, earlier variables) (string, error) {
	switch {
	case envVar.ValueFrom == nil:
		return expand(envVar.Value, earlier), nil
	case envVar.ValueFrom.FieldRef != nil:
		return c.pod.field(envVar.ValueFrom.FieldRef.FieldPath)
	default:
		return "", errors.New("hostpods does not support its source")
	}
}

func isSet(flag *bool) bool { return flag != nil && *flag }

// configMap returns the data of a ConfigMap, or nothing if the ConfigMap is optional and missing.
func (p *hostPod) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	configMap, err := p.host.client.CoreV1().ConfigMaps(p.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isSet(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for key, value := range configMap.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, configMap.BinaryData)
	return data, nil
}

// secret returns the data of a Secret, or nothing if the Secret is optional and missing.
func (p *hostPod) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	secret, err := p.host.client.CoreV1().Secrets(p.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isSet(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

// field returns a field of the pod, by its path in the downward API.
func (p *hostPod) field(name string) (string, error) {
	values := map[string]string{
		"metadata.name":           p.first.Name,
		"metadata.namespace":      p.first.Namespace,
		"metadata.uid":            string(p.first.UID),
		"spec.nodeName":           p.first.Spec.NodeName,
		"spec.serviceAccountName": p.first.Spec.ServiceAccountName,
		"status.hostIP":           "127.0.0.1",
		"status.hostIPs":          "127.0.0.1",
		"status.podIP":            p.address.listenIP(),
		"status.podIPs":           p.address.listenIP(),
	}
	value, ok := values[name]
	if !ok {
		return "", fmt.Errorf("hostpods does not support the field %s", name)
	}
	return value, nil
}

// expand replaces $(NAME) by the value of the variable, if the variable exists, and $$ by $.
func expand(text string, values variables) string {
	return expansion.Expand(text, expansion.MappingFuncFor(values))
}

// rewrite replaces the path of a mount by the path of the volume's folder, at the beginning of an argument or after its
// first "=".
func (c *container) rewrite(text string) string {
	flag, value, isFlag := strings.Cut(text, "=")
	if !isFlag || strings.HasPrefix(text, "/") {
		return c.hostPath(text)
	}
	return flag + "=" + c.hostPath(value)
}

// hostPath returns the path of a container's file on this machine, in the volume of the innermost mount that contains
// the file.
func (c *container) hostPath(file string) string {
	best := ""
	result := file
	for _, mount := range c.spec.VolumeMounts {
		mountPath := path.Clean(mount.MountPath)
		rest, ok := strings.CutPrefix(file, mountPath)
		if ok && (rest == "" || rest[0] == '/') && len(mountPath) > len(best) {
			best = mountPath
			result = filepath.Join(c.pod.volumeFolder(mount.Name), mount.SubPath, rest)
		}
	}
	return result
}
