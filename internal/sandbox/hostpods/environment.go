package hostpods

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// variables are those of a process. Later ones replace earlier ones.
type variables map[string]string

func (v variables) lookup(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// list returns the variables as a process gets them.
func (v variables) list() []string {
	list := []string{} // nil would be this process's own
	for _, name := range slices.Sorted(maps.Keys(v)) {
		list = append(list, name+"="+v[name])
	}
	return list
}

// accountMount is where a container finds its service account's token.
const accountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// environment returns what the pod says, and what leads a process to its home, its temporary files and the cluster.
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
	for _, one := range c.spec.Env {
		value, ok, err := c.value(ctx, one, v)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", one.Name, err)
		}
		if ok {
			v[one.Name] = c.hostPath(value)
		}
	}
	return v, nil
}

// addAll adds what a ConfigMap or a Secret has.
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

// value returns the value of a variable, or false if it is to have none.
func (c *container) value(ctx context.Context, one corev1.EnvVar, before variables) (string, bool, error) {
	switch from := one.ValueFrom; {
	case from == nil:
		return expand(one.Value, before.lookup), true, nil
	case from.FieldRef != nil:
		value, err := c.pod.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := resourceField(c.spec, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := c.pod.configMap(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := c.pod.secret(ctx, ref.Name, ref.Optional)
		return pick(data, ref.Key, ref.Optional, err)
	default:
		return "", false, fmt.Errorf("its source is not supported on this machine")
	}
}

func pick(data map[string][]byte, key string, optional *bool, err error) (string, bool, error) {
	value, ok := data[key]
	if err == nil && !ok && !isSet(optional) {
		err = fmt.Errorf("there is no key %q", key)
	}
	return string(value), ok, err
}

func isSet(flag *bool) bool { return flag != nil && *flag }

// configMap returns what a ConfigMap has. One that may be missing has nothing then.
func (p *hostPod) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	found, err := p.host.client.CoreV1().ConfigMaps(p.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isSet(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := map[string][]byte{}
	for key, value := range found.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, found.BinaryData)
	return data, nil
}

// secret is the same for a Secret.
func (p *hostPod) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	found, err := p.host.client.CoreV1().Secrets(p.first.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isSet(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.Data, nil
}

// field returns a field of the pod, by its path in the downward API.
func (p *hostPod) field(name string) (string, error) {
	if key, ok := subscript(name, "metadata.labels"); ok {
		return p.first.Labels[key], nil
	}
	if key, ok := subscript(name, "metadata.annotations"); ok {
		return p.first.Annotations[key], nil
	}
	values := map[string]string{
		"metadata.name":           p.first.Name,
		"metadata.namespace":      p.first.Namespace,
		"metadata.uid":            string(p.first.UID),
		"metadata.labels":         quotedLines(p.first.Labels),
		"metadata.annotations":    quotedLines(p.first.Annotations),
		"spec.nodeName":           p.first.Spec.NodeName,
		"spec.serviceAccountName": p.first.Spec.ServiceAccountName,
		"status.hostIP":           "127.0.0.1",
		"status.hostIPs":          "127.0.0.1",
		"status.podIP":            p.address.listen(),
		"status.podIPs":           p.address.listen(),
	}
	value, ok := values[name]
	if !ok {
		return "", fmt.Errorf("the field %s is not supported on this machine", name)
	}
	return value, nil
}

// subscript returns what a path has in brackets after its beginning.
func subscript(name, before string) (string, bool) {
	rest, ok := strings.CutPrefix(name, before+"['")
	return strings.TrimSuffix(rest, "']"), ok
}

// quotedLines are labels or annotations as the downward API has them in files.
func quotedLines(values map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, fmt.Sprintf("%s=%q", key, values[key]))
	}
	return strings.Join(lines, "\n")
}

// resourceField returns a limit or a request of a container, rounded up to multiples of the divisor.
func resourceField(spec corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	from, name, _ := strings.Cut(ref.Resource, ".")
	quantities := spec.Resources.Limits
	if from == "requests" {
		quantities = spec.Resources.Requests
	}
	quantity, ok := quantities[corev1.ResourceName(name)]
	if !ok {
		return "", fmt.Errorf("the container has no %s, and nodes are simulated", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	return fmt.Sprintf("%.0f", math.Ceil(quantity.AsApproximateFloat64()/divisor.AsApproximateFloat64())), nil
}

// expand replaces $(NAME) by a variable's value, if there is one, and $$ by $.
func expand(text string, lookup func(string) (string, bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, isReference := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		isReference = isReference && strings.HasPrefix(rest, "(")
		value, isKnown := "", false
		if isReference {
			value, isKnown = lookup(name)
		}
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteString("$")
			text = rest[1:]
		case isKnown:
			out.WriteString(value)
			text = after
		case isReference:
			out.WriteString("$(" + name + ")")
			text = after
		default:
			out.WriteString("$")
			text = rest
		}
	}
}

// rewrite replaces the path of a mount by that of the volume's folder, at the beginning of an argument or after
// its first "=".
func (c *container) rewrite(text string) string {
	flag, value, isFlag := strings.Cut(text, "=")
	if !isFlag || strings.HasPrefix(text, "/") {
		return c.hostPath(text)
	}
	return flag + "=" + c.hostPath(value)
}

// hostPath returns where the file of a container is on this machine: the innermost mount has it.
func (c *container) hostPath(file string) string {
	best, result := "", file
	for _, mount := range c.spec.VolumeMounts {
		at := path.Clean(mount.MountPath)
		rest, ok := strings.CutPrefix(file, at)
		if ok && (rest == "" || rest[0] == '/') && len(at) > len(best) {
			best, result = at, filepath.Join(c.pod.volumeFolder(mount.Name), mount.SubPath, rest)
		}
	}
	return result
}
