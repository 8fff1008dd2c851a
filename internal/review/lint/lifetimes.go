package lint

import (
	"cmp"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/runlevel/runlevel/internal/objects/kinds"
)

// These rules are about containers that are killed early or never start, and Jobs that never run.

// graceOf returns the seconds that a pod has to stop.
func graceOf(spec *corev1.PodSpec) int64 {
	if spec.TerminationGracePeriodSeconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds
	}
	return *spec.TerminationGracePeriodSeconds
}

// patience returns the seconds after which a probe that always fails has its container killed, with the API server's
// defaults.
func patience(probe *corev1.Probe) int64 {
	return int64(probe.InitialDelaySeconds + cmp.Or(probe.PeriodSeconds, 10)*cmp.Or(probe.FailureThreshold, 3))
}

func checkKilledEarly(s *subject, r *reporter) {
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		grace := graceOf(spec)
		if grace < 2 && pods.by.kind.Kind == "StatefulSet" {
			pods.field(r, "terminationGracePeriodSeconds", "terminationGracePeriodSeconds %d kills the program "+
				"before it can stop, and it may damage its data: allow the time that the program needs", grace)
		}
		for _, c := range pods.typedContainers() {
			for j, probe := range probesOf(c.Container)[:2] {
				checkProbe(pods, probe, c.field+"|"+probeNames[j], r)
			}
			if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil {
				continue
			}
			for _, words := range commandsOf(c.Lifecycle.PreStop.Exec.Command) {
				seconds, err := strconv.ParseInt(strings.TrimSuffix(words[len(words)-1], "s"), 10, 64)
				if err == nil && seconds >= grace && path.Base(words[0]) == "sleep" {
					pods.field(r, c.field+"|lifecycle|preStop", "the preStop handler sleeps for %d seconds, and the "+
						"pod has %d to stop, so the container is killed without being asked to stop: raise "+
						"terminationGracePeriodSeconds", seconds, grace)
				}
			}
		}
	})
	for _, c := range s.containers() {
		c.checkSchemes(s, r)
	}
}

var probeNames = []string{"livenessProbe", "startupProbe", "readinessProbe"}

func probesOf(container corev1.Container) []*corev1.Probe {
	return []*corev1.Probe{container.LivenessProbe, container.StartupProbe, container.ReadinessProbe}
}

// minPatience is the time, in seconds, for which a container must be allowed not to answer.
const minPatience = 5

// checkProbe looks for a probe that kills a container that works.
func checkProbe(pods podSet, probe *corev1.Probe, field string, r *reporter) {
	if probe == nil {
		return
	}
	if seconds := patience(probe) - int64(probe.InitialDelaySeconds); seconds < minPatience {
		pods.field(r, field+"|failureThreshold", "periodSeconds × failureThreshold of the %s is %d: a container that "+
			"does not answer for so long is killed, and under load that may be all of them: raise failureThreshold",
			field[strings.LastIndex(field, "|")+1:], seconds)
	}
}

// checkSchemes looks for probes by HTTP of a server that speaks HTTPS, or the other way round: the same program had
// another scheme in the previous payload, or another probe of the port has.
func (c *container) checkSchemes(s *subject, r *reporter) {
	probes := probesOf(*c.Container)
	if c.isSameProgram(s) && reflect.DeepEqual(c.Env, c.before.Env) &&
		reflect.DeepEqual(c.VolumeMounts, c.before.VolumeMounts) {
		var changed []string
		for i, before := range probesOf(*c.before.Container) {
			if haveOtherSchemes(probes[i], before) {
				changed = append(changed, probeNames[i])
			}
		}
		if len(changed) > 0 {
			c.report(r, []string{changed[0], "httpGet", "scheme"}, "has another scheme in its %s than in %s, and its "+
				"program is the same, so the probe always fails, and the container is killed or never ready: write "+
				"the scheme as before", strings.Join(changed, " and its "), c.before.pods.by.place())
			return
		}
	}
	for i, probe := range probes[:2] {
		if haveOtherSchemes(probe, c.ReadinessProbe) {
			c.report(r, []string{probeNames[i], "httpGet", "scheme"}, "has another scheme in its %s than in its "+
				"readinessProbe of the same port, so one always fails, and the container is killed or never "+
				"ready: use the same", probeNames[i])
		}
	}
}

// haveOtherSchemes reports whether two probes of the same port have different schemes.
func haveOtherSchemes(a, b *corev1.Probe) bool {
	return a != nil && b != nil && a.HTTPGet != nil && b.HTTPGet != nil && a.HTTPGet.Port == b.HTTPGet.Port &&
		cmp.Or(a.HTTPGet.Scheme, corev1.URISchemeHTTP) != cmp.Or(b.HTTPGet.Scheme, corev1.URISchemeHTTP)
}

// commandsOf returns the words of each command that a container runs; nil if a script has more than plain commands.
func commandsOf(command []string) (commands [][]string) {
	isScript := len(command) == 3 && strings.HasSuffix(command[0], "sh") && strings.HasSuffix(command[1], "c")
	if !isScript && len(command) > 0 {
		return [][]string{command}
	}
	if !isScript || strings.ContainsAny(strings.ReplaceAll(command[2], "&&", ";"), "|&(){}`$") {
		return nil
	}
	for line := range strings.Lines(strings.NewReplacer("&&", "\n", ";", "\n").Replace(command[2])) {
		if words := strings.Fields(line); len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

// shortCommands are programs that end at once.
var shortCommands = []string{"echo", "true", "false", "date", "ls", "mkdir", "touch", "cp", "mv",
	"chmod", "chown", "exit"}

// goesOn reports whether a command may not end at once. If the program is the image's, words are only its arguments.
func (c podContainer) goesOn(words []string) bool {
	last, isShort := words[len(words)-1], slices.Contains(shortCommands, path.Base(words[0]))
	return last != "--version" && last != "--help" && (len(c.Command) == 0 || !isShort)
}

// neverEnds reports whether a command waits for ever.
func neverEnds(words []string) bool {
	program, last := path.Base(words[0]), words[len(words)-1]
	return program == "tail" && slices.Contains(words, "-f") || program == "sleep" && strings.HasPrefix(last, "inf")
}

func checkNeverStarts(s *subject, r *reporter) {
	s.eachPods(func(pods podSet, spec *corev1.PodSpec) {
		for _, c := range pods.typedContainers() {
			checkProgram(pods, c, "command", c.Command, r)
			for i, probe := range probesOf(c.Container) {
				if probe != nil && probe.Exec != nil {
					checkProgram(pods, c, probeNames[i]+"|exec|command", probe.Exec.Command, r)
				}
			}
			commands := commandsOf(slices.Concat(c.Command, c.Args))
			user, isNonRoot := userOf(spec, c.Container)
			if isNonRoot && user != nil && *user == 0 {
				pods.field(r, c.field, "runAsNonRoot is true and runAsUser is 0 for the container %s, so the kubelet "+
					"does not start it: set another user", c.Name)
			}
			switch {
			case c.isInit && c.RestartPolicy == nil && slices.ContainsFunc(commands, neverEnds):
				pods.field(r, c.field, "the init container %s in initContainers never ends, and the containers of the "+
					"pod wait for its end: set restartPolicy: Always, or move it to containers", c.Name)
			case !c.isInit && len(commands) > 0 && pods.restarts() && !slices.ContainsFunc(commands, c.goesOn):
				pods.field(r, c.field+"|command", "the command of the container %s ends at once, and the container is "+
					"started again for ever: run the program, or use a Job", c.Name)
			}
		}
	})
	if s.previous == nil {
		return
	}
	s.podPairs(func(old, now podSet) {
		containerPairs(old, now, func(before, c podContainer) {
			if c.ImagePullPolicy == corev1.PullNever && before.ImagePullPolicy != corev1.PullNever {
				now.field(r, c.field+"|imagePullPolicy", "imagePullPolicy Never starts the container %s only on nodes "+
					"that have the image %s: use IfNotPresent", c.Name, c.Image)
			}
		})
	})
}

// checkProgram looks for a command that begins with an argument, or has its arguments in one word with the program.
func checkProgram(pods podSet, c podContainer, field string, command []string, r *reporter) {
	name := strings.ReplaceAll(field, "|", ".")
	switch {
	case len(command) == 0 || strings.ContainsAny(command[0], `\{`): // a path of Windows, or a template
	case strings.HasPrefix(command[0], "-"):
		pods.field(r, c.field+"|"+field, "%s of the container %s begins with the argument %q, and no program has that "+
			"name: write the program before it, or move a container's arguments to args", name, c.Name, command[0])
	case strings.Contains(strings.TrimSpace(command[0]), " "):
		pods.field(r, c.field+"|"+field, "%s of the container %s starts no shell, and no program has the name %q: "+
			"make each word an item of its own", name, c.Name, command[0])
	}
}

// userOf returns the user of a container, nil if the image has it, and whether it must not be root.
func userOf(spec *corev1.PodSpec, container corev1.Container) (user *int64, isNonRoot bool) {
	pod, own := spec.SecurityContext, container.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	nonRoot := cmp.Or(own.RunAsNonRoot, pod.RunAsNonRoot)
	return cmp.Or(own.RunAsUser, pod.RunAsUser), nonRoot != nil && *nonRoot
}

// minDeadline is the time, in seconds, between two looks of the controller of CronJobs.
const minDeadline = 10

// maxShortDeadline is the time, in seconds, in which many Jobs do not complete.
const maxShortDeadline = 300

func checkNeverRuns(s *subject, r *reporter) {
	each(s, kinds.CronJob, func(m *manifest, job *batchv1.CronJob) {
		schedule, err := cron.ParseStandard(job.Spec.Schedule)
		if err == nil && schedule.Next(time.Unix(0, 0)).IsZero() {
			r.field(m, []string{"spec", "schedule"}, "the schedule %s has a day that never comes, so the Job never "+
				"runs: correct the day or the month", job.Spec.Schedule)
		}
		if deadline := job.Spec.StartingDeadlineSeconds; deadline != nil && *deadline < minDeadline {
			r.field(m, []string{"spec", "startingDeadlineSeconds"}, "startingDeadlineSeconds %d skips Jobs, since "+
				"the controller looks at schedules only every %d seconds: allow more", *deadline, minDeadline)
		}
		checkJobEnds(m, job.Spec.JobTemplate.Spec, []string{"spec", "jobTemplate", "spec"}, r)
	})
	each(s, kinds.Job, func(m *manifest, job *batchv1.Job) { checkJobEnds(m, job.Spec, []string{"spec"}, r) })
	if s.previous == nil {
		return
	}
	s.pairs(func(old, m *manifest) {
		schedule := m.text("spec", "schedule")
		if m.groupKind() == kinds.CronJob && isEveryMinute(schedule) && !isEveryMinute(old.text("spec", "schedule")) {
			r.field(m, []string{"spec", "schedule"}, "the schedule %s starts a Job every minute of an hour, and that "+
				"of %s is %s: write the minute, such as 0", schedule, old.place(), old.text("spec", "schedule"))
		}
		path := []string{"spec", "jobTemplate", "spec", "activeDeadlineSeconds"}
		before, now := old.number(0, path...), m.number(0, path...)
		if now >= minDeadline && now < maxShortDeadline && before >= 10*now {
			r.field(m, path, "activeDeadlineSeconds %d stops the Job after that time, and %s allows %d: allow as much "+
				"as the Job may need", now, old.place(), before)
		}
	})
}

// isEveryMinute reports whether a schedule has hours without a minute.
func isEveryMinute(schedule string) bool {
	fields := strings.Fields(schedule)
	return len(fields) == 5 && fields[0] == "*" && fields[1] != "*"
}

// queueLabel is the label of Jobs that Kueue resumes.
const queueLabel = "kueue.x-k8s.io/queue-name"

// checkJobEnds looks for Jobs that never complete.
func checkJobEnds(m *manifest, job batchv1.JobSpec, path []string, r *reporter) {
	if job.Parallelism != nil && *job.Parallelism == 0 {
		r.field(m, append(path, "parallelism"), "parallelism 0 starts no pod, so the Job never completes, and an "+
			"update waits for it: set 1")
	}
	if job.Suspend != nil && *job.Suspend && job.ManagedBy == nil &&
		m.get(slices.Concat(path[:len(path)-1], []string{"metadata", "labels", queueLabel})...) == nil {
		r.field(m, append(path, "suspend"), "suspend starts no pod until someone resumes the Job, and an update "+
			"waits for it: remove it")
	}
	if deadline := job.ActiveDeadlineSeconds; deadline != nil && *deadline < minDeadline {
		r.field(m, append(path, "activeDeadlineSeconds"), "activeDeadlineSeconds %d stops the Job after that time, "+
			"in which pods hardly start: allow more", *deadline)
	}
}
