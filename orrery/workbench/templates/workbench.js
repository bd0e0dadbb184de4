{% include "theme.js" %}
{% include "units.js" %}
{% include "timeline_model.js" %}
{% include "timeline_draw.js" %}
{% include "timeline.js" %}
{
{% include "bench_requests.js" %}
{% include "bench_cluster.js" %}
{% include "bench_results.js" %}
{% include "bench_scenarios.js" %}
{% include "bench_address.js" %}
{% include "bench_subject.js" %}
}
