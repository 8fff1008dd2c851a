def setting($what; $variable):
  (.metadata.annotations["sandbox.runlevel.dev/" + $what] | select(. != ""))
  // ([.spec.containers[0].env[]? | select(.name == $variable) | .value] | last | select(. != ""))
  // null;

def exitCode: setting("exit-code"; "SANDBOX_EXIT_CODE");

def startAfter: setting("start-after"; "SANDBOX_START_AFTER");

def runFor:
  .metadata.annotations as $annotations
  | if $annotations["sandbox.runlevel.dev/exit-code"] != null and $annotations["sandbox.runlevel.dev/run-for"] == null
    then "0s"
    else setting("run-for"; "SANDBOX_RUN_FOR") end;

def does:
  setting("pod"; "SANDBOX_POD") as $behavior
  | exitCode as $code
  | if $behavior == "complete" or $behavior == "fail" then "end"
    elif $behavior != null and $behavior != "run" then $behavior
    elif $code != null then
      if .spec.restartPolicy == "Never" or (.spec.restartPolicy == "OnFailure" and $code == "0") then "end" else "crash" end
    elif $behavior == null and (.spec.restartPolicy == "Never" or any(.metadata.ownerReferences[]?; .kind == "Job")) then "end"
    else "run" end;

def seconds:
  [scan("([0-9.]+)(h|ms|us|ns|m|s)") | (.[0] | tonumber) * {h: 3600, m: 60, s: 1, ms: 0.001, us: 0.000001, ns: 0.000000001}[.[1]]] | add // 0;

def nextStep:
  if .status.phase == "Pending" and (does | IN("run", "end", "crash")) then startAfter // "0s" | seconds
  elif .status.phase == "Running" and does == "end" then runFor // "0s" | seconds
  elif .status.phase == "Running" and does == "crash" then runFor // "500ms" | seconds
  else infinite end;

def deadline: (.status.startTime | fromdate) + .spec.activeDeadlineSeconds;
