-- Writes the cluster that headgate has chosen into a header, by which routes match: whatever the
-- client sent there is gone. Without an answer it is the one that the rules prefer.
function envoy_on_request(handle)
  local told = handle:streamInfo():dynamicMetadata():get("envoy.filters.http.ratelimit")
  local chosen = told and told["choose"] and told["choose"]["NAME"]
  handle:headers():replace("HEADER", chosen or "FIRST")
  handle:clearRouteCache()
end
