package mistakes_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/runlevel/runlevel/internal/cluster"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/pkg/payload"
)

// An observer describes what users of a namespace would notice, in lines. The lines call the namespace "shop".
type observer struct {
	config    *rest.Config
	client    kubernetes.Interface
	cluster   *cluster.Cluster
	namespace string
	kinds     map[schema.GroupKind]bool // kinds of the objects to describe
	ids       map[kinds.ID]bool         // cluster-scoped objects to describe
	shows     string                    // the lines to be seen: what they do not ask for is not tried at each look
}

// A sight is what an observer saw at a time.
type sight struct {
	lines   map[string]bool
	objects map[string]types.UID // objects by kind and name
	pods    map[string][]types.UID
	unready bool // whether anything still starts
}

func (s *sight) add(format string, args ...any) { s.lines[fmt.Sprintf(format, args...)] = true }

// watched adds the objects of releases to those that the observer describes.
func (o *observer) watched(releases ...*payload.Payload) {
	o.kinds, o.ids = map[schema.GroupKind]bool{kinds.PersistentVolumeClaim: true}, map[kinds.ID]bool{}
	for _, release := range releases {
		for _, m := range release.Manifests {
			if id := m.ID(); id.Namespace != "" {
				o.kinds[id.GroupKind()] = true
			} else {
				o.ids[id] = true
			}
		}
	}
}

// look describes the namespace now.
func (o *observer) look(ctx context.Context) (*sight, error) {
	s := &sight{lines: map[string]bool{}, objects: map[string]types.UID{}, pods: map[string][]types.UID{}}
	for kind := range o.kinds {
		if _, err := o.cluster.FindKind(ctx, kind); err != nil {
			continue // its definition is not there, or no longer
		}
		found, err := o.cluster.List(ctx, kind, o.namespace, "")
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		for i := range found {
			s.addObject(&found[i])
		}
	}
	for id := range o.ids {
		if object, err := o.cluster.Get(ctx, id); err == nil {
			s.addObject(object)
		}
	}
	for _, part := range []struct {
		word string
		add  func(context.Context, *sight) error
	}{
		{"", o.addPods}, {"Service ", o.addServices}, {"Event ", o.addEvents},
		{" may ", o.addRights}, {"creating ", o.addWrites}, {"evicting ", o.addEvictions},
	} {
		if !strings.Contains(o.shows, part.word) {
			continue
		}
		if err := part.add(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addObject describes an object: its fields, its conditions, and the numbers of its pods.
func (s *sight) addObject(object *unstructured.Unstructured) {
	name := object.GetKind() + " " + object.GetName()
	s.objects[name] = object.GetUID()
	if object.GetDeletionTimestamp() != nil {
		s.add("%s is being deleted", name)
	}
	for key, value := range object.Object {
		if key != "metadata" && key != "status" {
			s.addFields(name+" "+key, object.GetKind() == "Secret" && key == "data", value)
		}
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		fields, _ := condition.(map[string]any)
		s.add("%s: %v=%v %v %v", name, fields["type"], fields["status"], fields["reason"], fields["message"])
	}
	number := func(path ...string) int64 {
		value, _, _ := unstructured.NestedInt64(object.Object, path...)
		return value
	}
	wanted := cmp.Or(number("status", "desiredNumberScheduled"), number("spec", "replicas"))
	are := cmp.Or(number("status", "readyReplicas"), number("status", "numberReady"))
	updated := cmp.Or(number("status", "updatedReplicas"), number("status", "updatedNumberScheduled"))
	switch object.GetKind() {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet":
		if are != wanted || updated != wanted || number("status", "observedGeneration") != object.GetGeneration() {
			s.unready = true
			s.add("%s: %d of %d are ready, %d updated", name, are, wanted, updated)
		}
	case "Job":
		s.unready = s.unready || len(conditions) == 0
	case "PodDisruptionBudget":
		s.add("%s allows %d evictions", name, number("status", "disruptionsAllowed"))
	}
}

// addFields describes the fields of an object below a path.
func (s *sight) addFields(path string, isEncoded bool, value any) {
	switch inner := value.(type) {
	case map[string]any:
		for key, field := range inner {
			s.addFields(path+"."+key, isEncoded, field)
		}
	case []any:
		for i, item := range inner {
			s.addFields(fmt.Sprintf("%s[%d]", path, i), isEncoded, item)
		}
	default:
		text := fmt.Sprint(value)
		if decoded, err := base64.StdEncoding.DecodeString(text); isEncoded && err == nil {
			text = string(decoded)
		}
		s.add("%s=%s", path, text)
	}
}

// addPods describes pods.
func (o *observer) addPods(ctx context.Context, s *sight) error {
	pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := ownerOf(pod)
		s.pods[owner] = append(s.pods[owner], pod.UID)
		for _, condition := range pod.Status.Conditions {
			if condition.Status != corev1.ConditionTrue && condition.Message != "" {
				s.add("Pod of %s: %s: %s", owner, pod.Status.Phase, condition.Message)
			}
		}
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if waiting := status.State.Waiting; waiting != nil {
				s.add("Pod of %s: %s: %s %s", owner, pod.Status.Phase, waiting.Reason, waiting.Message)
			}
		}
	}
	return nil
}

// addEvictions describes whether a pod of each owner could be evicted.
func (o *observer) addEvictions(ctx context.Context, s *sight) error {
	pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		owner := ownerOf(pod)
		if uids := s.pods[owner]; len(uids) == 0 || uids[0] != pod.UID || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		err := o.client.CoreV1().Pods(o.namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: o.namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
		if err != nil {
			s.add("evicting a pod of %s is refused: %v", owner, err)
		}
	}
	return nil
}

// ownerOf returns the workload of a pod.
func ownerOf(pod *corev1.Pod) string {
	if len(pod.OwnerReferences) == 0 {
		return "Pod/" + pod.Name
	}
	owner := pod.OwnerReferences[0]
	name, _, isHashed := strings.Cut(owner.Name, "-"+pod.Labels["pod-template-hash"])
	if owner.Kind == "ReplicaSet" && isHashed {
		return "Deployment/" + name
	}
	return owner.Kind + "/" + owner.Name
}

// addServices describes what Services reach.
func (o *observer) addServices(ctx context.Context, s *sight) error {
	services, err := o.client.CoreV1().Services(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	endpoints, err := o.client.DiscoveryV1().EndpointSlices(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := o.client.CoreV1().Pods(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owners := map[string]string{}
	for i := range pods.Items {
		owners[pods.Items[i].Name] = ownerOf(&pods.Items[i])
	}
	for _, service := range services.Items {
		reached := map[string]bool{}
		for _, slice := range endpoints.Items {
			if slice.Labels["kubernetes.io/service-name"] != service.Name {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.TargetRef != nil && endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					reached[owners[endpoint.TargetRef.Name]] = true
				}
			}
			if len(slice.Endpoints) > 0 && len(slice.Ports) == 0 {
				s.add("Service %s reaches no port", service.Name)
			}
			for _, port := range slice.Ports {
				if port.Port != nil && len(slice.Endpoints) > 0 {
					s.add("Service %s reaches port %d", service.Name, *port.Port)
				}
			}
		}
		if len(reached) == 0 {
			s.add("Service %s has no endpoints", service.Name)
		} else {
			s.add("Service %s reaches %s", service.Name, strings.Join(slices.Sorted(maps.Keys(reached)), ","))
		}
	}
	return nil
}

// addEvents describes warnings.
func (o *observer) addEvents(ctx context.Context, s *sight) error {
	events, err := o.client.CoreV1().Events(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning {
			about := event.InvolvedObject
			s.add("Event %s/%s %s: %s", about.Kind, about.Name, event.Reason, event.Message)
		}
	}
	return nil
}

// addRights describes the rights of the ServiceAccounts of the namespace in it, and in the namespace default.
func (o *observer) addRights(ctx context.Context, s *sight) error {
	accounts, err := o.client.CoreV1().ServiceAccounts(o.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, account := range accounts.Items {
		config := rest.CopyConfig(o.config)
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + o.namespace + ":" + account.Name,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + o.namespace,
				"system:authenticated"},
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		for namespace, where := range map[string]string{o.namespace: "", "default": " (cluster)"} {
			review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
				&authorizationv1.SelfSubjectRulesReview{
					Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
				}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			for _, rule := range review.Status.ResourceRules {
				for _, right := range rightsOf(rule) {
					s.add("ServiceAccount %s may %s%s", account.Name, right, where)
				}
			}
		}
	}
	return nil
}

// rightsOf returns the rights of a rule, such as "get deployments.apps" or "get configmaps/web".
func rightsOf(rule authorizationv1.ResourceRule) (rights []string) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					right := strings.TrimSuffix(verb+" "+resource+"."+group, ".")
					if name != "" {
						right += "/" + name
					}
					rights = append(rights, right)
				}
			}
		}
	}
	return rights
}

// addWrites describes which writes are refused, by dry runs.
func (o *observer) addWrites(ctx context.Context, s *sight) error {
	for _, try := range []struct{ what, namespace, manifest string }{
		{"a ConfigMap", o.namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: try}}`},
		{"a Pod", o.namespace, `{apiVersion: v1, kind: Pod, metadata: {name: try}, spec: {containers: [{name: try, ` +
			`image: registry.example/try:1, resources: {requests: {cpu: 10m, memory: 16Mi}}}]}}`},
		{"a Widget", o.namespace, `{apiVersion: ` + o.namespace + `.example/v1, kind: Widget, metadata: {name: try}, ` +
			`spec: {size: 2}}`},
		{"a ConfigMap in kube-system", "kube-system", `{apiVersion: v1, kind: ConfigMap, metadata: {name: try}}`},
	} {
		object := parse(try.manifest)
		object.SetNamespace(try.namespace)
		if err := apply(ctx, o.cluster, object, cluster.Force|cluster.DryRun); err != nil {
			s.add("creating %s is refused: %v", try.what, err)
		}
	}
	return nil
}

// changes returns the lines that are new since an earlier sight, and the objects and rights that are gone.
func (s *sight) changes(before *sight) []string {
	var found []string
	for line := range s.lines {
		if !before.lines[line] {
			found = append(found, line)
		}
	}
	for line := range before.lines {
		if account, right, isRight := strings.Cut(line, " may "); isRight && !s.lines[line] {
			found = append(found, account+" may not "+right)
		}
	}
	for name, uid := range before.objects {
		switch now, exists := s.objects[name]; {
		case !exists:
			found = append(found, name+" is gone")
		case now != uid:
			found = append(found, name+" is another object")
		}
	}
	for owner, uids := range before.pods {
		now := s.pods[owner]
		if len(now) > 0 && !slices.ContainsFunc(now, func(uid types.UID) bool { return slices.Contains(uids, uid) }) {
			found = append(found, "pods of "+owner+" restarted")
		}
	}
	slices.Sort(found)
	return found
}
