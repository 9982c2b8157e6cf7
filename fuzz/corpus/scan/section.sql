-- figures, with everything that looks like a parameter and is none
SELECT o.id::text AS org_id, count(*) AS "n:from", 'a '':to'' b' AS quoted, $tag$ :from $tag$ AS dollar
FROM orgs AS o /* :org_ids /* nested */ */
JOIN events AS e ON e.org_id = o.id
WHERE o.id = ANY(:org_ids) AND e.at >= :from AND e.at < :to AND e.tags[1:2] = ARRAY['x'] AND e.data ? 'k'
GROUP BY 1;
