# What the rules of `nft list ruleset` and `iptables-save` do with a UDP packet to port 4791 that comes in on an interface:
#   awk -v netdev=NAME -f firewall.awk
# prints "open", "refused KIND FAMILY TABLE CHAIN" (KIND: nft or iptables, whose tool the chain belongs to), or "unsure".
#
# A condition holds for such a packet, or does not, or may ("yes", "no", "maybe"). If the packet is refused in the end and no
# rule that may hold lets it in before, then it is refused; open is the reverse; anything else is unsure. Only chains of the
# input hook count: docker's and libvirt's rules for forwarding see no packet that is meant for this host.

# nft: table FAMILY NAME { chain NAME { type filter hook input priority filter; policy drop; RULE ... } }
$1 == "table" { table = "nft " $2 " " $3; next }
$1 == "chain" && $3 == "{" { chain = table " " $2; next }
$1 == "}" { chain = ""; next }
chain != "" && $1 == "type" {
  if ($4 == "input" && table ~ /^[a-z]+ (ip|ip6|inet) /) add_input(chain)
  if ($0 ~ /policy drop/) drops[chain] = 1
  next
}
chain != "" { add_rule(chain, $0); next }

# iptables: *TABLE, then :CHAIN POLICY [0:0], then -A CHAIN RULE
/^\*/ { table = "iptables ip " substr($1, 2); next }
/^:/ {
  if ($1 == ":INPUT") add_input(table " INPUT")
  if ($2 == "DROP") drops[table " " substr($1, 2)] = 1
  next
}
/^-A / { add_rule(table " " $2, substr($0, length("-A " $2) + 1)) }

function add_input(name) { inputs[++input_count] = name }

# Leaves out what decides nothing: counters, comments and logging.
function add_rule(name, text) {
  gsub(/counter packets [0-9]+ bytes [0-9]+/, "", text)
  gsub(/(-m comment )?(--)?comment ("[^"]*"|[^ ]+)/, "", text)
  gsub(/(^|[ \t])log( prefix "[^"]*")?( (level|flags|group|snaplen|queue-threshold) [^ ]+)*/, " ", text)
  gsub(/[ \t]+/, " ", text)
  rules[name, ++count[name]] = text
}

# Is 4791 one of these ports: 53 or { 53, 4790-4800 } or 53,4790:4800?
function has_port(list, i, n, parts, ends) {
  if (list ~ /[@!a-z]/) return "maybe"
  gsub(/[{},]/, " ", list)
  n = split(list, parts, " ")
  for (i = 1; i <= n; i++) {
    if (split(parts[i], ends, /[-:]/) < 2) ends[2] = ends[1]
    if (ends[1] + 0 <= 4791 && 4791 <= ends[2] + 0) return "yes"
  }
  return "no"
}

function is_interface(name) {
  if (name ~ /[*+{@]/ || (netdev == "" && name != "lo")) return "maybe"
  return name == netdev ? "yes" : "no"
}

# Does this condition hold? What certainly does is cut out; what is left may.
function holds(text, part) {
  if (text ~ /(daddr|-d) 127\./ && text !~ /! -d/) return "no"
  if (text ~ /!/) return "maybe"
  if (text ~ /(^|[ {])(tcp|icmp|icmpv6|ipv6-icmp|igmp|sctp|esp|ah|ip6|ipv6)([ ,}]|$)/ && text !~ /udp/) return "no"
  if (match(text, /(ct state|--ctstate|--state) ([{][^}]*[}]|[^ ]+)/)) {
    if (tolower(substr(text, RSTART, RLENGTH)) !~ /new/) return "no"
    text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
  }
  if (match(text, /((udp|th) dport|--dports?) ([{][^}]*[}]|[^ ]+)/)) {
    part = substr(text, RSTART, RLENGTH)
    text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    sub(/^.*dports? /, "", part)
    if ((part = has_port(part)) != "yes") return part
  }
  if (match(text, /(^| )(iifname|iif|-i) "?[^ "]+"?/)) {
    part = substr(text, RSTART, RLENGTH)
    text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
    gsub(/"|^ ?[^ ]+ /, "", part)
    if ((part = is_interface(part)) != "yes") return part
  }
  gsub(/meta nfproto ipv4|meta l4proto udp|meta l4proto [{] tcp, udp [}]|ip protocol udp/, "", text)
  gsub(/-p udp|-m (udp|multiport|conntrack|state)/, "", text)
  return text ~ /^ *$/ ? "yes" : "maybe"
}

function possibly(outcome) {
  if (outcome != "refuse") may_accept = 1
  if (outcome != "accept") may_refuse = 1
}

# What a chain does with the packet: accept, refuse, or next (nothing, the chain that called it goes on).
function walk(name, i, text, verb, held, outcome) {
  for (i = 1; i <= count[name]; i++) {
    text = rules[name, i]
    if (text ~ /ct state vmap/ && text !~ /new/) continue
    if (match(text, / vmap /)) {
      if (holds(substr(text, 1, RSTART - 1)) != "no") possibly("anything")
      continue
    }
    if (!match(text, /(^| )(accept|drop|reject|return|queue|jump [^ ]+|goto [^ ]+|-[jg] [^ ]+)( |$)/)) continue
    verb = substr(text, RSTART, RLENGTH)
    held = holds(substr(text, 1, RSTART - 1))
    if (held == "no") continue
    outcome = result_of(verb, name)
    if (held == "maybe" && outcome != "next") possibly(outcome)
    if (held == "maybe") continue
    if (outcome == "return" || verb ~ /goto|-g/) return outcome == "return" ? "next" : outcome
    if (outcome == "unknown") possibly(outcome)
    else if (outcome != "next") return outcome
  }
  return "next"
}

function result_of(verb, name, target, outcome) {
  gsub(/^ *(jump|goto|-[jg])? */, "", verb)
  sub(/ *$/, "", verb)
  target = name
  sub(/[^ ]+$/, verb, target)
  if (target in count) return walk(target)
  outcome = tolower(verb)
  if (outcome == "accept" || outcome == "return") return outcome
  if (outcome == "drop" || outcome == "reject") return "refuse"
  return outcome ~ /queue/ ? "unknown" : "next" # LOG, MARK and their like let the next rule decide
}

function judge(name, outcome) {
  may_accept = may_refuse = 0
  outcome = walk(name)
  if (outcome == "next") outcome = name in drops ? "refuse" : "accept"
  if (outcome == "accept") return may_refuse ? "unsure" : "open"
  return may_accept || name ~ / ip6 / ? "unsure" : "refused" # of IPv6 mend uses an address only where there is no IPv4 one
}

END {
  verdict = "open"
  for (number = 1; number <= input_count && verdict !~ /refused/; number++) {
    judged = judge(inputs[number])
    if (judged == "refused") verdict = "refused " inputs[number]
    else if (judged == "unsure") verdict = judged
  }
  sub(/nft ip filter INPUT$/, "iptables ip filter INPUT", verdict) # iptables-nft made it
  print verdict
}
