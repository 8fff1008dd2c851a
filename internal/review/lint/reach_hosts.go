package lint

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// This rule is about the hosts of Services in variables, arguments and settings.

// A text is a value of a manifest that a program reads.
type text struct {
	by    *manifest
	path  []string
	key   string // the container and the variable or flag, or the key of a ConfigMap
	value string
	pods  *podSet // nil if it is not a variable or an argument
}

var (
	// anyPort finds numbers that may be ports.
	anyPort = regexp.MustCompile(`\b\d{2,5}\b`)
	// anyHost finds hosts, the scheme and user or the character before each, and its port.
	anyHost = regexp.MustCompile(`((?:^|[^\w.$%/{}\\-])(?:[a-z+]+://(?:[^\s/@"']*@)?)?)` +
		`([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?::(\d+))?`)
	// hostKey finds variables and flags of hosts by their names.
	hostKey = regexp.MustCompile(`(?i)host|addr|url|server|endpoint|upstream|service|peer|backend`)
)

// maxText limits the length of the searched texts: longer ones are dashboards and the like.
const maxText = 1 << 16

// names reports whether a text has a number.
func (t text) names(number int32) bool {
	return slices.Contains(anyPort.FindAllString(t.value, -1), strconv.Itoa(int(number)))
}

// name returns the variable, flag or key of a text.
func (t text) name() string { return t.key[strings.LastIndex(t.key, " ")+1:] }

// described returns the name of a text for messages: words of a command have none of their own.
func (t text) described() string {
	n := len(t.path)
	if t.name() != t.path[n-2]+t.path[n-1] {
		return t.name()
	}
	kind := map[string]string{"containers": "container", "initContainers": "init container"}[t.path[n-4]]
	list := map[string]string{"command": "the command", "args": "an argument"}[t.path[n-2]]
	return list + " of the " + kind + " " + strings.Fields(t.key)[0]
}

// texts returns the variables and arguments of pods.
func (p podSet) texts() (found []text) {
	containers, paths := p.containers("containers", "initContainers")
	for i, container := range containers {
		name, _ := container["name"].(string)
		add := func(key string, value any, path ...string) {
			if value, isText := value.(string); isText && len(value) <= maxText {
				found = append(found, text{p.by, slices.Concat(paths[i], path), name + " " + key, value, &p})
			}
		}
		variables, _ := container["env"].([]any)
		for j, variable := range variables {
			fields, _ := variable.(map[string]any)
			key, _ := fields["name"].(string)
			add(key, fields["value"], "env", strconv.Itoa(j), "value")
		}
		for _, list := range []string{"command", "args"} {
			items, _ := container[list].([]any)
			for j, item := range items {
				flag, _ := item.(string)
				flag, _, isFlag := strings.Cut(flag, "=")
				if !isFlag {
					flag = list + strconv.Itoa(j)
				}
				add(flag, item, list, strconv.Itoa(j))
			}
		}
	}
	return found
}

// texts returns the variables, arguments and settings of the payload.
func (ix *index) texts() (found []text) {
	for _, sets := range ix.pods() {
		for _, pods := range sets {
			found = append(found, pods.texts()...)
		}
	}
	for kind, field := range map[schema.GroupKind]string{kinds.ConfigMap: "data", kinds.Secret: "stringData"} {
		for _, m := range ix.byKind[kind] {
			values, _ := m.get(field).(map[string]any)
			for key, value := range values {
				if value, isText := value.(string); isText && len(value) <= maxText && !m.isTombstone {
					found = append(found, text{m, []string{field, key}, key, value, nil})
				}
			}
		}
	}
	return found
}

// A call is the host of a Service in a text.
type call struct {
	text
	host    string // as it is written
	service kinds.ID
	port    int32 // 0 if it is not known
	isFull  bool  // NAME.NAMESPACE.svc
}

// findCalls returns the hosts of Services in texts.
func (s *subject) findCalls() (found []call) {
	texts := s.texts()
	for _, text := range texts {
		for _, part := range anyHost.FindAllStringSubmatchIndex(text.value, -1) {
			before, host := text.value[part[2]:part[3]], text.value[part[4]:part[5]]
			c, isService := s.serviceOf(text, host)
			if !isService || isWithin(text.value, part[4], part[1]) {
				continue
			}
			if part[6] > 0 {
				port, _ := strconv.Atoi(text.value[part[6]:part[7]])
				c.port = int32(min(port, 1<<16)) //nolint:gosec // it is limited
			}
			scheme, _, isScheme := strings.Cut(before, "://")
			if c.port == 0 && isScheme {
				c.port = map[string]int32{"http": 80, "https": 443}[strings.TrimLeft(scheme, "\"'=,;([ \n\t")]
			}
			isWhole := text.value == host || strings.HasSuffix(text.value, "="+host)
			if isScheme || c.port >= minPort || strings.Contains(host, ".") ||
				isWhole && hostKey.MatchString(text.name()) {
				found = append(found, c)
			}
		}
	}
	addPortsBeside(found, texts)
	return found
}

// addPortsBeside gives calls the ports of the variables X_PORT beside their X_HOST.
func addPortsBeside(calls []call, texts []text) {
	values := map[string]text{}
	for _, text := range texts {
		values[text.by.id.String()+" "+text.key] = text
	}
	for i, c := range calls {
		name := strings.TrimSuffix(c.key, "HOST")
		beside, isNamed := values[c.by.id.String()+" "+name+"PORT"]
		number, err := strconv.ParseUint(beside.value, 10, 16)
		if isNamed && name != c.key && c.port == 0 && c.value == c.host && err == nil {
			calls[i].port, calls[i].path = int32(number), beside.path //nolint:gosec // it has 16 bits
		}
	}
}

// minPort is the smallest number of a port: smaller ones are tags of images.
const minPort = 80

// isWithin reports whether a part of a text is within a longer word, or in a line about images.
func isWithin(value string, start, end int) bool {
	line := value[strings.LastIndexByte(value[:start], '\n')+1:]
	line, _, _ = strings.Cut(line, "\n")
	isLonger := end < len(value) && !strings.ContainsRune(" \t\r\n/\"',;)]>?|`&", rune(value[end])) &&
		!(value[end] == '.' && (end+1 == len(value) || strings.ContainsRune(" \n/\":", rune(value[end+1]))))
	return isLonger || strings.Contains(strings.ToLower(line), "image")
}

// serviceOf returns the Service of a host, if the host is the one of a Service of this or the previous payload, or ends
// with .svc.
func (s *subject) serviceOf(text text, host string) (c call, isService bool) {
	names := strings.Split(host, ".")
	name, namespace := names[0], text.by.id.Namespace
	if len(names) > 1 {
		namespace = names[1]
	}
	id, isFull := kinds.NewID(kinds.Service, namespace, name), len(names) > 2
	isService = isFull && names[2] == "svc" || !isFull && (len(s.byID[id]) > 0 || s.isInPrevious(id))
	return call{text, host, id, 0, isFull}, isService
}

func checkUnreachableHost(s *subject, r *reporter) {
	for _, c := range s.calls() {
		services := slices.DeleteFunc(slices.Clone(s.byID[c.service]), func(m *manifest) bool {
			return m.isTombstone || !s.shareCluster(m, c.by)
		})
		if len(services) == 0 {
			s.reportMissingHost(r, c)
		} else if c.port > 0 && !slices.ContainsFunc(services, func(m *manifest) bool {
			old := s.previousOf(m) // service-narrowed reports the ports that a Service loses
			return m.servesPort(int64(c.port)) || m.text("spec", "clusterIP") == corev1.ClusterIPNone ||
				old != nil && old.servesPort(int64(c.port))
		}) {
			r.field(c.by, c.path, "%s (%s) has no port %d, so requests to %s:%d get no answer: correct the port",
				c.service, services[0].place(), c.port, c.host, c.port)
		}
	}
	s.reportResolvers(r)
	each(s, kinds.Service, func(m *manifest, service *corev1.Service) {
		if net.ParseIP(service.Spec.ExternalName) != nil {
			r.field(m, []string{"spec", "externalName"}, "externalName is an address, which DNS takes for a name that "+
				"does not exist: name a host, or drop the selector and add an EndpointSlice")
		}
	})
}

// reportMissingHost reports a host whose Service does not exist any more, or that an update brings and nothing creates.
// A host that a first release names may be one of another release.
func (s *subject) reportMissingHost(r *reporter, c call) {
	creators := s.creators()
	switch id := c.service; {
	case s.excluded[id] != nil || s.isKnownObject(id) || s.isCreatedByController(id):
	case len(s.byID[id]) > len(tombstonesOf(s.byID[id])): // on another cluster
	case s.isInPrevious(id):
		old := s.previous.byID[id][0]
		r.field(c.by, c.path, "%s names the host %s, and the payload no longer has %s (%s): name another host",
			c.described(), c.host, id, old.place())
	case c.isFull && (s.isSlip(c) || s.isNewHost(c.host) && creators.creatorOf(id) == "" &&
		!s.hasForeignKinds(id.Namespace)):
		r.field(c.by, c.path, "%s names the host %s, and nothing in the payload creates %s: correct the name, or "+
			"list it as known in the configuration", c.described(), c.host, id)
	}
}

// isNewHost reports whether nothing in the previous payload names a host.
func (s *subject) isNewHost(host string) bool {
	return s.previous != nil && !slices.ContainsFunc(s.previous.texts(), func(text text) bool {
		return strings.Contains(text.value, host)
	})
}

// isSlip reports whether the value before had nearly the same host, of a Service that this payload has.
func (s *subject) isSlip(c call) bool {
	old := s.previousOf(c.by)
	if old == nil {
		return false
	}
	value, _ := fieldAt(old.Object().Object, c.path).(string)
	return slices.ContainsFunc(anyHost.FindAllStringSubmatch(value, -1), func(match []string) bool {
		former, isService := s.serviceOf(c.text, match[2])
		return isService && former.service != c.service && s.present(former.service, c.by) != nil &&
			printable.EditDistance(match[2], c.host) <= maxSlip
	})
}

// maxSlip is the number of letters by which a misspelt host differs.
const maxSlip = 2

// reportResolvers reports pods that name hosts of Services, and do not ask the resolver that knows them. The hosts in
// settings may be for other programs, so that they count only if the resolver changes.
func (s *subject) reportResolvers(r *reporter) {
	first := map[*manifest]caller{}
	for id, callers := range s.callers() {
		for _, c := range callers {
			field, old := resolverField(c.pods), s.podsBefore(c.pods)
			isChanged := old != nil && resolverField(*old) == ""
			known, isKnown := first[c.pods.by]
			isUsed := len(s.byID[id]) > 0 && (c.call.pods != nil || isChanged)
			if field != "" && isUsed && (!isKnown || c.host < known.host) {
				first[c.pods.by] = c
			}
		}
	}
	for _, c := range first {
		field := resolverField(c.pods)
		c.pods.field(r, field, "with %s the pods use the resolver of the node, which does not find the host %s: set "+
			"dnsPolicy to ClusterFirst, or to ClusterFirstWithHostNet in the network of the node", field, c.host)
	}
}

// resolverField returns the field by which pods do not ask the resolver of the cluster; "" if they do.
func resolverField(pods podSet) string {
	spec := pods.typed()
	switch {
	case spec == nil || spec.DNSConfig != nil:
		return ""
	case spec.DNSPolicy == corev1.DNSDefault:
		return "dnsPolicy"
	case spec.HostNetwork && spec.DNSPolicy != corev1.DNSClusterFirstWithHostNet:
		return "hostNetwork"
	default:
		return ""
	}
}

// A caller is pods that name the host of a Service.
type caller struct {
	call
	pods podSet
}

// callers returns the pods that name hosts of Services, in variables and arguments or in settings that they read.
func (s *subject) callers() map[kinds.ID][]caller {
	found := map[kinds.ID][]caller{}
	for _, c := range s.calls() {
		if c.pods != nil {
			found[c.service] = append(found[c.service], caller{c, *c.pods})
		}
		for _, use := range s.graph.Uses[c.by.id] {
			if len(use.Keys) > 0 && !slices.Contains(use.Keys, c.key) {
				continue
			}
			for _, pods := range s.pods()[use.By.id.Namespace] {
				if pods.by == use.By && c.pods == nil {
					found[c.service] = append(found[c.service], caller{c, pods})
				}
			}
		}
	}
	return found
}
