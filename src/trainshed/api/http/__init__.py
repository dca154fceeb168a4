"""What all routes share: routing, authentication, bodies, responses, media, long polls, paging."""
