package lint

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// checkMissingVariable looks for variables that a container no longer gets although its program is the same, and for
// references to variables that it does not have.
func checkMissingVariable(s *subject, r *reporter) {
	for _, c := range s.containers() {
		if !c.hasVariables {
			continue
		}
		c.checkExpansions(r)
		c.checkHidden(r)
		if !c.isSameProgram(s) || !c.before.hasVariables || len(c.VolumeMounts) > len(c.before.VolumeMounts) {
			continue
		}
		var lost []string
		for _, name := range sortedKeys(c.before.variables) {
			now, stays := c.variables[name]
			before, next := c.before.variables[name], c.successorOf(name)
			_, isFile := c.variables[name+"_FILE"]
			switch {
			case stays && now.index >= 0 && now.value() == "" && len(before.value()) > len("false"):
				c.report(r, []string{"env", strconv.Itoa(now.index)}, "gets an empty variable %s, which was not empty "+
					"in the previous payload: write its value", name)
			case stays || isFile || len(validation.IsCIdentifier(name)) > 0:
			case next != "":
				c.report(r, nil, "no longer has the variable %s, but %s, and its image is the same: keep the name "+
					"that its program reads", name, next)
			case before.isWhole && !before.isSecret &&
				(c.scriptReadsOthers(name) || s.lostHost(c.pods.by, before.value())):
			case before.isSecret, before.isWhole && before.source.groupKind() == kinds.Secret,
				before.isWhole && !c.reads(before.source):
				lost = append(lost, name)
			case before.isWhole: // the program may have a default
				r.note(c.pods.by, c.field, "the container %s no longer has the variable %s, and its image is the "+
					"same: make sure that it does not need it", c.Name, name)
			}
		}
		if len(lost) > 0 {
			c.report(r, nil, "no longer has %s, and its image is the same: keep what its program reads until an image "+
				"no longer does", strings.Join(lost, ", "))
		}
	}
}

// checkHidden looks for variables of a new source that hide values of a Secret.
func (c *container) checkHidden(r *reporter) {
	for _, name := range sortedKeys(c.variables) {
		v := c.variables[name]
		if v.hides != nil && c.before != nil && !c.before.reads(v.source) {
			c.report(r, []string{"envFrom"}, "gets the variable %s from %s, which hides the value in %s (%s:%d): "+
				"set a prefix for one", name, v.source.id, v.hides.id, v.hides.Path, v.hides.Line)
		}
	}
}

// reads reports whether a container has a variable of a ConfigMap or a Secret.
func (c *container) reads(source *manifest) bool {
	for _, v := range c.variables {
		if v.source != nil && v.source.id == source.id {
			return true
		}
	}
	return false
}

// isSameProgram reports whether a container runs the same image with the same arguments as in the previous payload. If
// the payload lists its images, the names in manifests do not show that.
func (c *container) isSameProgram(s *subject) bool {
	return c.before != nil && len(s.Images) == 0 && c.Image == c.before.Image &&
		slices.Equal(c.Command, c.before.Command) && slices.Equal(c.Args, c.before.Args)
}

// scriptReadsOthers reports whether a container runs a script that reads variables, and not one of a name.
func (c *container) scriptReadsOthers(name string) bool {
	words := slices.Concat(c.Command, c.Args)
	i := slices.Index(words, "-c") + 1
	return i > 0 && i < len(words) && shellVariable.MatchString(words[i]) && !strings.Contains(words[i], "exec ") &&
		!slices.ContainsFunc(shellVariable.FindAllStringSubmatch(words[i], -1), func(match []string) bool {
			return match[1] == name
		})
}

// shellVariable matches a variable in a script of a shell.
var shellVariable = regexp.MustCompile(`\$\{?([A-Za-z_]\w*)`)

// lostHost reports whether a value names a Service of the previous payload that this one does not have.
func (s *subject) lostHost(m *manifest, value string) bool {
	for _, match := range anyHost.FindAllStringSubmatch(value, -1) {
		c, isService := s.serviceOf(text{by: m}, match[2])
		if isService && s.isInPrevious(c.service) && s.present(c.service, m) == nil {
			return true
		}
	}
	return false
}

// successorOf returns the new variable that has the value of a variable of the previous payload, or nearly its name; ""
// if there is none.
func (c *container) successorOf(name string) string {
	before := c.before.variables[name]
	value := before.value()
	for _, next := range sortedKeys(c.variables) {
		_, isOld := c.before.variables[next]
		isNear := strings.EqualFold(separators.Replace(name), separators.Replace(next))
		now := c.variables[next]
		isSame := before.isWhole && now.isWhole && now.key == before.key && now.source.id == before.source.id
		if !isOld && (isNear || isSame || len(value) > len("false") && now.value() == value) {
			return next
		}
	}
	return ""
}

// separators removes the separators in names of variables.
var separators = strings.NewReplacer("_", "", "-", "", ".", "")

// expansion matches a reference to a variable; "$$" is a dollar sign.
var expansion = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][\w.-]*)\)`)

// checkExpansions looks for references to variables in the values and arguments of a container that stay as they are.
func (c *container) checkExpansions(r *reporter) {
	check := func(text, field string, index int) {
		for _, match := range expansion.FindAllStringSubmatch(text, -1) {
			name, why := match[1], ""
			found, isFound := c.variables[name]
			wasFound := false
			if c.before != nil {
				_, wasFound = c.before.variables[name]
			}
			switch near := printable.Nearest(name, sortedKeys(c.variables), 2); {
			case name == "" || isFound && (field != "env" || found.index < index):
			case isFound && found.index > index:
				why = "is listed below it: move " + name + " above it"
			case !isFound && wasFound:
				why = "it no longer has: keep the variable, or change the name"
			case !isFound && near != "" && name != strings.ToLower(name): // else a shell may run a command
				why = "it does not have: did you mean " + near + "?"
			}
			if why != "" {
				c.report(r, []string{field, strconv.Itoa(index)}, "refers to the variable $(%s), which %s", name, why)
			}
		}
	}
	for i, env := range c.Env {
		check(env.Value, "env", i)
	}
	for i, text := range c.Command {
		check(text, "command", i)
	}
	for i, text := range c.Args {
		check(text, "args", i)
	}
}
